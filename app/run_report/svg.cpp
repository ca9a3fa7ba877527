#include "app/run_report/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace paceline::app {
namespace {

constexpr double kWidth = 800;
constexpr double kLeft = 70;  // room for the y axis's label, names and numbers
constexpr double kRight = 20;
constexpr double kLegend = 5;  // left end of the legend; if it were kLeft, not all phases would fit
constexpr double kTop = 34;    // room for the legend
constexpr double kBottom = 40;
constexpr double kLetter = 6.6;  // about the mean width of a letter in a font of size 12

/// A short text for the number, e.g. "250 k".
std::string number(double value) {
  if (value != 0 && std::abs(value) < 1e-3) return fmt::format("{:.3g}", value);
  double unit = 1;
  const char* name = "";
  for (const auto& [size, letter] :
       {std::pair(1e3, " k"), std::pair(1e6, " M"), std::pair(1e9, " G")}) {
    if (std::abs(value) < 10 * size) break;
    unit = size;
    name = letter;
  }
  return fmt::format("{:g}{}", std::round(value / unit * 1e6) / 1e6, name);
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

double Axis::place(double value) const {
  const double from = logarithmic ? std::log(least) : least;
  const double to = logarithmic ? std::log(most) : most;
  const double at = logarithmic ? std::log(std::max(value, least)) : value;
  return to > from ? std::clamp((at - from) / (to - from), 0.0, 1.0) : 0;
}

std::vector<double> Axis::ticks() const {
  std::vector<double> ticks;
  if (logarithmic) {
    const bool few = most / least < 1e3;
    for (double power = std::pow(10, std::floor(std::log10(least))); power <= most; power *= 10)
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double tick = power * factor;
        if (tick >= least && tick <= most && (few || factor == 1)) ticks.push_back(tick);
      }
    return ticks;
  }
  if (!(most > least)) return {least};
  const double rough = (most - least) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double factor = rough / power;
  const double step = power * (factor < 1.5 ? 1 : factor < 3.5 ? 2 : factor < 7.5 ? 5 : 10);
  for (double i = std::ceil(least / step); i * step <= most * (1 + 1e-9); ++i)
    ticks.push_back(i * step);
  return ticks;
}

Plot::Plot(Axis x, Axis y, double height)
    : x_axis_(std::move(x)), y_axis_(std::move(y)), height_(height), legend_end_(kLegend) {}

double Plot::x(double value) const {
  return kLeft + x_axis_.place(value) * (kWidth - kLeft - kRight);
}
double Plot::y(double value) const { return kTop + (1 - y_axis_.place(value)) * height_; }

void Plot::line(const std::vector<std::pair<double, double>>& points, const std::string& color) {
  body_ += "<polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"" + color + "\" points=\"";
  for (const auto& [px, py] : points) body_ += fmt::format("{:.1f},{:.1f} ", x(px), y(py));
  body_ += "\"/>\n";
}

void Plot::box(double x0, double y0, double x1, double y1, const std::string& color) {
  body_ += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x(x0),
      y(std::max(y0, y1)), std::max(0.1, x(x1) - x(x0)), std::abs(y(y0) - y(y1)), color);
}

void Plot::mark(double at, const std::string& word) {
  const double width = kLetter * static_cast<double>(word.size());
  const bool fits = x(at) - width > kLeft;  // the word fits to the left of its line
  row_ = marked_ > 0 && x(at) - width < marked_ ? row_ + 1 : 0;
  marked_ = fits ? x(at) : x(at) + width;
  body_ += fmt::format(
      "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" class=\"mark\"/>"
      "<text x=\"{0:.1f}\" y=\"{3:.1f}\" class=\"word\" text-anchor=\"{4}\">{5}</text>\n",
      x(at), kTop, kTop + height_, kTop + 11 + 12 * row_, fits ? "end" : "start", escaped(word));
}

void Plot::name(double at, const std::string& word) {
  names_ = true;
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 5,
                       y(at) + 4, escaped(word));
}

void Plot::legend(const std::string& color, const std::string& word) {
  legend_ += fmt::format(
      "<rect x=\"{:.1f}\" y=\"8\" width=\"10\" height=\"10\" fill=\"{}\"/>"
      "<text x=\"{:.1f}\" y=\"17\">{}</text>\n",
      legend_end_, color, legend_end_ + 14, escaped(word));
  legend_end_ += 25 + kLetter * static_cast<double>(word.size());
}

std::string Plot::text() const {
  std::string text =
      fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">\n", kWidth, kTop + height_ + kBottom);
  text += legend_ + body_;
  text += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"frame\"/>\n",
                      kLeft, kTop, kWidth - kLeft - kRight, height_);
  for (const double tick : x_axis_.ticks())
    text += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" class=\"tick\"/>"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4}</text>\n",
        x(tick), kTop + height_, kTop + height_ + 4, kTop + height_ + 16, number(tick));
  text += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                      (kWidth + kLeft - kRight) / 2, kTop + height_ + 33, escaped(x_axis_.label));
  if (!names_) {
    for (const double tick : y_axis_.ticks())
      text += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" class=\"tick\"/>"
          "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
          kLeft - 4, kLeft, y(tick), kLeft - 7, y(tick) + 4, number(tick));
  }
  text += fmt::format(
      "<text transform=\"translate(12,{:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      kTop + height_ / 2, escaped(y_axis_.label));
  return text + "</svg>\n";
}

}  // namespace paceline::app
