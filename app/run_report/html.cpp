#include "app/run_report/reports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "app/run_report/svg.hpp"
#include "app/run_report/views.hpp"

namespace paceline::app {
namespace {

constexpr const char* kStyle = R"(<style>
body { font: 15px/1.4 system-ui, sans-serif; margin: 0 auto; padding: 0 1em; max-width: 60em; color: #222; }
h1 { font-size: 1.4em; } h2 { font-size: 1.15em; margin-top: 1.6em; } h3 { font-size: 1em; margin-bottom: .3em; }
div.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15em .7em; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { border-bottom: 1px solid #888; font-weight: 600; } tr:nth-child(even) td { background: #f5f5f5; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
.frame { fill: none; stroke: #888; } .tick { stroke: #888; } .mark { stroke: #444; stroke-dasharray: 3 3; }
.word { font-size: 11px; fill: #444; }
.pictured article { border-top: 1px solid #ccc; } .pictured h4 { font-size: 1em; margin: .6em 0 .2em; }
.pictured pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; padding: .3em .6em; background: #f5f5f5; }
.seen { display: flex; flex-wrap: wrap; gap: 1em; align-items: end; } .seen figure { margin: .3em 0; }
.seen img { max-width: 24em; max-height: 24em; min-height: 4em; image-rendering: auto; display: block; }
.seen figcaption, .gone { font-size: 12px; color: #666; overflow-wrap: anywhere; }
@media print { body { max-width: none; } section { break-inside: avoid; } }
</style>
)";

// Colors by Phase: three greys, and Okabe and Ito's palette for readers with color blindness.
constexpr std::array<const char*, kPhases> kColors{"#cccccc", "#888888", "#56b4e9", "#0072b2",
                                                   "#009e73", "#e69f00", "#cc79a7", "#d55e00",
                                                   "#000000", "#f0e442", "#f2f2f2"};
constexpr const char* kBlue = "#0072b2";
constexpr const char* kOrange = "#e69f00";
constexpr const char* kTail = "#fdf0d5";

double bin_seconds(const RunFigures& figures) {
  return figures.bins() > 0 ? figures.seconds / figures.bins() : 0;
}

Axis time_axis(const RunFigures& figures) { return {0, figures.seconds, false, "seconds"}; }

/// Shades the time in which the last tenth of the responses finished.
void shade_last_tenth(Plot& plot, const RunFigures& figures, double top) {
  if (figures.responses.empty()) return;
  plot.box(figures.finished_by(0.9), 0, figures.finished_by(1), top, kTail);
}

void mark_shares(Plot& plot, const RunFigures& figures) {
  if (figures.responses.empty()) return;
  for (const double share : {0.5, 0.9, 0.99, 1.0})
    plot.mark(figures.finished_by(share), fmt::format("{:.0f} %", 100 * share));
}

/// Points of the plot of `value` over time, as a line that is level within each bin.
template <typename Value>
std::vector<std::pair<double, double>> steps_of(const RunFigures& figures, const Value& value) {
  std::vector<std::pair<double, double>> points;
  for (int bin = 0; bin < figures.bins(); ++bin) {
    points.emplace_back(bin * bin_seconds(figures), value(figures.timeline[bin]));
    points.emplace_back((bin + 1) * bin_seconds(figures), value(figures.timeline[bin]));
  }
  return points;
}

/// The upper end of an axis: a little above the greatest value of all bins, or 1 if this is 0.
template <typename Value>
double axis_top(const RunFigures& figures, const Value& value) {
  double most = 0;
  for (const RunFigures::Bin& bin : figures.timeline) most = std::max<double>(most, value(bin));
  return most > 0 ? 1.05 * most : 1;
}

/// The phase that took the largest part of a rank's bin; nullopt: the rank was not in the job then.
std::optional<Phase> largest_phase(const PhaseSeconds& seconds) {
  if (!(seconds.sum() > 0)) return std::nullopt;
  return seconds.largest();
}

/// A plot with a row for each rank. Each bin of a row has the color of its largest_phase().
std::string rank_timeline(const RunFigures& figures) {
  const auto ranks = static_cast<double>(figures.ranks.size());
  if (figures.ranks.empty()) return "";
  const double height = std::clamp(14 * ranks, 60.0, 700.0);
  Plot plot(time_axis(figures), {0, ranks, false, "rank"}, height);
  const PhaseSeconds all = figures.all_ranks();
  for (int phase = 0; phase < kPhases; ++phase) {
    if (all.of[phase] > 0) plot.legend(kColors[phase], name_of(static_cast<Phase>(phase)));
  }
  for (std::size_t i = 0; i < figures.ranks.size(); ++i) {
    const RankFigures& rank = figures.ranks[i];
    const double top = ranks - static_cast<double>(i);
    int from = 0;
    for (int bin = 1; bin <= figures.bins(); ++bin) {
      const std::optional<Phase> phase = largest_phase(rank.timeline[from]);
      if (bin < figures.bins() && largest_phase(rank.timeline[bin]) == phase) continue;
      if (phase) {
        plot.box(from * bin_seconds(figures), top - 0.9, bin * bin_seconds(figures), top,
                 kColors[static_cast<std::size_t>(*phase)]);
      }
      from = bin;
    }
    const auto every = static_cast<std::size_t>(std::ceil(14 * ranks / height));
    if (i % every == 0)
      plot.name(top - 0.5, fmt::format("{} {}", rank.rank, name_of(rank.role)[0]));
  }
  return plot.text();
}

template <typename Value>
std::string over_time(const RunFigures& figures, const char* label, const Value& value) {
  const double most = axis_top(figures, value);
  Plot plot(time_axis(figures), {0, most, false, label}, 140);
  shade_last_tenth(plot, figures, most);
  plot.line(steps_of(figures, value), kBlue);
  mark_shares(plot, figures);
  return plot.text();
}

std::string drafts_over_time(const RunFigures& figures) {
  const auto drafted = [](const RunFigures::Bin& bin) { return bin.drafted; };
  Plot plot(time_axis(figures), {0, axis_top(figures, drafted), false, "draft tokens/s"}, 140);
  plot.legend(kOrange, "verified");
  plot.legend(kBlue, "accepted");
  plot.line(steps_of(figures, drafted), kOrange);
  plot.line(steps_of(figures, [](const RunFigures::Bin& bin) { return bin.accepted; }), kBlue);
  return plot.text();
}

/// A histogram of the lengths of responses. Bins are equally wide on the logarithmic axis.
std::string lengths(const RunFigures& figures) {
  constexpr int kBins = 40;
  if (figures.responses.empty()) return "";
  const double longest = std::max(2.0, figures.length_quantile(1 - 1e-9));
  Axis axis{1, 1.05 * longest, true, "response tokens"};
  std::array<double, kBins> counts{};
  for (const ResponseFigures& response : figures.responses)
    ++counts[std::min(kBins - 1, static_cast<int>(axis.place(response.tokens) * kBins))];
  const double most = *std::max_element(counts.begin(), counts.end());
  Plot plot(axis, {0, 1.05 * most, false, "responses"}, 140);
  for (int bin = 0; bin < kBins; ++bin) {
    if (counts[bin] == 0) continue;
    const auto edge = [&](double i) { return std::pow(axis.most, i / kBins); };
    plot.box(edge(bin), 0, edge(bin + 0.92), counts[bin], kBlue);
  }
  for (const double share : {0.5, 0.95, 0.99})
    plot.mark(figures.length_quantile(share), fmt::format("p{:.0f}", 100 * share));
  std::uint32_t limit = 0;
  for (const ResponseFigures& response : figures.responses) {
    if (response.reason == FinishReason::length) limit = std::max(limit, response.tokens);
  }
  if (limit > 0) plot.mark(limit, "limit");
  return plot.text();
}

std::string html_of(const Table& table) {
  std::string text = "<h3>" + escaped(table.title) + "</h3>\n<div class=\"table\"><table>\n";
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const char* cell = i == 0 ? "th" : "td";
    text += "<tr>";
    for (const std::string& value : table.rows[i])
      text += fmt::format("<{0}>{1}</{0}>", cell, escaped(value));
    text += "</tr>\n";
  }
  return text + "</table></div>\n";
}

std::string picture(const char* title, const std::string& svg) {
  return svg.empty() ? "" : fmt::format("<section><h3>{}</h3>\n{}</section>\n", title, svg);
}

std::string html_of(const NamedRun& run) {
  const RunFigures& figures = run.figures;
  std::string text = "<h2>" + escaped(run.name) + "</h2>\n";
  for (const std::string& line : {progress_of(run.rewards), choice_of(run)}) {
    if (line.empty()) continue;
    text += "<p>" + escaped(line) + "</p>\n";
  }
  for (const std::string& line : headline_of(figures)) text += "<p>" + escaped(line) + "</p>\n";
  if (run.rewards) {
    text +=
        picture("Mean reward by response length; each bar is about a tenth of the scored responses",
                reward_by_length(*run.rewards));
    for (const Table& table : reward_tables(*run.rewards))
      text += "<section>" + html_of(table) + "</section>\n";
  }
  text += picture("Ranks over time, colored by the phase that took most of each interval",
                  rank_timeline(figures));
  text += picture("Requests in batches; shaded: while the last tenth of the responses finished",
                  over_time(figures, "requests", [](const auto& bin) { return bin.requests; }));
  text += picture("Response tokens a second",
                  over_time(figures, "tokens/s", [](const auto& bin) { return bin.tokens; }));
  text += picture("Response lengths", lengths(figures));
  text += picture("Turns of responses", turns_of_responses(figures.turns));
  if (figures.drafted > 0) text += picture("Drafts", drafts_over_time(figures));
  text += picture("KV blocks in use, % of the groups' pools",
                  over_time(figures, "%", [](const auto& bin) { return 100 * bin.kv_used; }));
  for (const Table& table : tables_of(figures))
    text += "<section>" + html_of(table) + "</section>\n";
  return text + html_of(run.pictured);
}

}  // namespace

std::string html_of(const std::vector<NamedRun>& runs) {
  std::string text =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>paceline: " +
      escaped(runs.empty() ? "" : runs.front().name) + "</title>\n" + kStyle +
      "</head><body>\n<h1>paceline report</h1>\n";
  if (const Table rewards = reward_table(runs); !rewards.rows.empty()) text += html_of(rewards);
  text += picture("Mean reward, run by run", reward_curve(runs));
  text += picture("Turns a response, run by run", turn_curve(runs));
  if (runs.size() > 1) text += html_of(comparison_of(runs));
  for (const NamedRun& run : runs) text += html_of(run);
  return text + "</body></html>\n";
}

}  // namespace paceline::app
