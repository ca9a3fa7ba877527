#include "app/run_report/views.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "app/run_report/svg.hpp"
#include "runtime/core/quantile.hpp"

namespace paceline::app {
namespace {

constexpr const char* kBlue = "#0072b2";

Table by_turns(const TurnFigures& turns) {
  Table table{fmt::format("Conversations, {:.2f} turns a response", turns.mean()),
              {{"turns", "responses", "%"}}};
  const double all = static_cast<double>(
      std::accumulate(turns.responses.begin(), turns.responses.end(), std::uint64_t{0}));
  for (std::size_t i = 0; i < turns.responses.size(); ++i) {
    if (turns.responses[i] == 0) continue;
    table.rows.push_back({fmt::format("{}", i), fmt::format("{}", turns.responses[i]),
                          fmt::format("{:.1f}", 100 * turns.responses[i] / all)});
  }
  return table;
}

Table waits(const std::vector<double>& seconds) {
  Table table{"Waits for answers, s", {{"answers", "p50", "p95", "longest", "mean", "all"}}};
  if (seconds.empty()) return table;
  const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  table.rows.push_back(
      {fmt::format("{}", seconds.size()), fmt::format("{:.3f}", quantile(seconds, 0.5)),
       fmt::format("{:.3f}", quantile(seconds, 0.95)), fmt::format("{:.3f}", seconds.back()),
       fmt::format("{:.3f}", sum / static_cast<double>(seconds.size())),
       fmt::format("{:.1f}", sum)});
  return table;
}

Table stored_kv(const StoredKvFigures& kv) {
  Table table{"KV of requests that waited, MiB",
              {{"stored", "fetched from memory", "from disk", "times dropped"}}};
  if (kv.stored == 0 && kv.lost == 0) return table;
  const auto mib = [](std::uint64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / (1024.0 * 1024.0));
  };
  table.rows.push_back(
      {mib(kv.stored), mib(kv.from_memory), mib(kv.from_disk), fmt::format("{}", kv.lost)});
  return table;
}

}  // namespace

std::vector<Table> turn_tables(const RunFigures& figures) {
  return {by_turns(figures.turns), waits(figures.turns.waits), stored_kv(figures.stored_kv)};
}

std::string turns_of_responses(const TurnFigures& figures) {
  if (figures.responses.empty()) return "";
  const double most = static_cast<double>(*std::ranges::max_element(figures.responses));
  Plot plot({0.5, static_cast<double>(figures.responses.size()) - 0.5, false, "turns"},
            {0, 1.05 * most, false, "responses"}, 140);
  for (std::size_t i = 0; i < figures.responses.size(); ++i) {
    const double at = static_cast<double>(i);
    if (figures.responses[i] > 0)
      plot.box(at - 0.4, 0, at + 0.4, static_cast<double>(figures.responses[i]), kBlue);
  }
  return plot.text();
}

std::string turn_curve(const std::vector<NamedRun>& runs) {
  std::vector<std::pair<double, double>> points;
  double most = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].figures.turns.responses.empty()) continue;
    points.emplace_back(static_cast<double>(i + 1), runs[i].figures.turns.mean());
    most = std::max(most, points.back().second);
  }
  if (points.size() < 2) return "";
  Plot plot({1, static_cast<double>(runs.size()), false, "run"},
            {0, 1.05 * most, false, "turns a response"}, 140);
  plot.line(points, kBlue);
  return plot.text();
}

}  // namespace paceline::app
