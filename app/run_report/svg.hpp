// Pictures of a report: plots with axes, as SVG that stands in an HTML page.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace paceline::app {

/// The text with every character escaped that HTML and SVG would take for markup.
[[nodiscard]] std::string escaped(const std::string& text);

/// An axis from `least` to `most`, with its ticks.
struct Axis {
  double least = 0;
  double most = 1;
  bool logarithmic = false;  ///< least > 0 then
  std::string label;

  /// Where a value lies, 0 to 1.
  [[nodiscard]] double place(double value) const;
  /// Round values within it, some five; powers of ten, and 2 and 5 times them, where logarithmic.
  [[nodiscard]] std::vector<double> ticks() const;
};

/// A picture that is as wide as its page. What is drawn later lies above. Coordinates are those of
/// the axes.
class Plot {
 public:
  /// `height`: of the plot itself, in units of which it is 800 wide.
  Plot(Axis x, Axis y, double height);

  void line(const std::vector<std::pair<double, double>>& points, const std::string& color);
  /// A box from one corner to the other.
  void box(double x0, double y0, double x1, double y1, const std::string& color);
  /// A vertical line with a word at its top, or further down where the last mark's would meet it.
  /// From left to right.
  void mark(double x, const std::string& word);
  /// A word left of the y axis, at that value; the axis has no ticks then.
  void name(double y, const std::string& word);
  /// Says above the plot, behind earlier calls' words, what a color stands for.
  void legend(const std::string& color, const std::string& word);
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] double x(double value) const;
  [[nodiscard]] double y(double value) const;

  Axis x_axis_;
  Axis y_axis_;
  double height_;
  double legend_end_ = 0;
  double marked_ = 0;  ///< where the last mark is
  int row_ = 0;        ///< of its word
  bool names_ = false;
  std::string body_;
  std::string legend_;
};

}  // namespace paceline::app
