#include "app/run_report/views.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/run_report/svg.hpp"

namespace paceline::app {
namespace {

constexpr const char* kBlue = "#0072b2";

std::string percent(std::uint64_t part, std::uint64_t whole) {
  return whole > 0
             ? fmt::format("{:.1f}", 100 * static_cast<double>(part) / static_cast<double>(whole))
             : "-";
}

std::string number_or_dash(double value) {
  return std::isnan(value) ? "-" : fmt::format("{:.4f}", value);
}

bool has_rewards(const NamedRun& run) { return run.rewards && run.rewards->scored > 0; }

/// An axis from 0, or from `least` if it is negative, to a little above `most`.
Axis reward_axis(double least, double most) {
  const double room = most > least ? 0.05 * (most - least) : 0.5;
  return {std::min(0.0, least), most + room, false, "mean reward"};
}

}  // namespace

Table reward_table(const std::vector<NamedRun>& runs) {
  Table table{"Rewards", {}};
  if (std::none_of(runs.begin(), runs.end(), has_rewards)) return table;
  std::uint32_t most = 1;  // largest number of scored responses to a prompt
  double threshold = 0;
  for (const NamedRun& run : runs) {
    if (!has_rewards(run)) continue;
    most = std::max(most, run.rewards->pass.back().k);
    threshold = run.rewards->threshold;
  }
  table.title +=
      fmt::format("; a response passes with a reward of {:g} or more (--pass)", threshold);
  const std::string pass_at_most = fmt::format("pass@{}", most);
  table.rows.push_back({"run", "weights", "responses", "scored", "mean", "std", "pass@1"});
  if (most > 1) table.rows[0].push_back(pass_at_most);
  for (const char* name : {"prompts with equal rewards, %", "tokens a response"})
    table.rows[0].emplace_back(name);
  for (const NamedRun& run : runs) {
    if (!run.rewards) continue;
    const RewardFigures& f = *run.rewards;
    const bool any = f.scored > 0;
    double tokens = 0;
    for (const RewardFigures::Length& length : f.by_length)
      tokens += static_cast<double>(length.tokens);
    std::vector<std::string> row{run.name,
                                 fmt::format("{}", f.weight_version),
                                 f.responses == f.expected
                                     ? fmt::format("{}", f.responses)
                                     : fmt::format("{} of {}", f.responses, f.expected),
                                 fmt::format("{}", f.scored),
                                 any ? fmt::format("{:.4f}", f.mean) : "-",
                                 any ? fmt::format("{:.4f}", f.deviation) : "-",
                                 number_or_dash(f.pass_at(1))};
    if (most > 1) row.push_back(number_or_dash(f.pass_at(most)));
    row.push_back(percent(f.equal, f.groups));
    row.push_back(any ? fmt::format("{:.1f}", tokens / static_cast<double>(f.scored)) : "-");
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<Table> reward_tables(const RewardFigures& figures) {
  std::vector<Table> tables;
  if (figures.scored == 0) return tables;
  Table pass{"Chance that at least one of k responses to a prompt passes",
             {{"k", "pass@k", "prompts"}}};
  for (const RewardFigures::PassAt& at : figures.pass)
    pass.rows.push_back(
        {fmt::format("{}", at.k), fmt::format("{:.4f}", at.rate), fmt::format("{}", at.prompts)});
  tables.push_back(std::move(pass));
  if (figures.groups > 0) {
    tables.push_back(
        {"Prompts by their rewards",
         {{"", "prompts", "%"},
          {"with two or more scored responses", fmt::format("{}", figures.groups), "100.0"},
          {"rewards all equal", fmt::format("{}", figures.equal),
           percent(figures.equal, figures.groups)},
          {"all responses pass", fmt::format("{}", figures.all_pass),
           percent(figures.all_pass, figures.groups)},
          {"none passes", fmt::format("{}", figures.none_pass),
           percent(figures.none_pass, figures.groups)}}});
  }
  Table lengths{std::isnan(figures.correlation)
                    ? "Reward by length"
                    : fmt::format("Reward by length (correlation {:.3f})", figures.correlation),
                {{"tokens", "responses", "mean reward"}}};
  for (const RewardFigures::Length& length : figures.by_length)
    lengths.rows.push_back({length.from == length.to ? fmt::format("{}", length.from)
                                                     : fmt::format("{}-{}", length.from, length.to),
                            fmt::format("{}", length.responses),
                            fmt::format("{:.4f}", length.mean)});
  tables.push_back(std::move(lengths));
  return tables;
}

std::string reward_curve(const std::vector<NamedRun>& runs) {
  std::vector<std::pair<double, double>> points;
  double least = 0;
  double most = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!has_rewards(runs[i])) continue;
    points.emplace_back(static_cast<double>(i + 1), runs[i].rewards->mean);
    least = std::min(least, points.back().second);
    most = points.size() == 1 ? points.back().second : std::max(most, points.back().second);
  }
  if (points.size() < 2) return "";
  Plot plot({1, static_cast<double>(runs.size()), false, "run"}, reward_axis(least, most), 140);
  plot.line(points, kBlue);
  return plot.text();
}

std::string reward_by_length(const RewardFigures& figures) {
  if (figures.by_length.empty()) return "";
  double least = figures.by_length.front().mean;
  double most = least;
  for (const RewardFigures::Length& length : figures.by_length) {
    least = std::min(least, length.mean);
    most = std::max(most, length.mean);
  }
  const double longest = std::max(2.0, static_cast<double>(figures.by_length.back().to));
  Plot plot({1, 1.05 * longest, true, "response tokens"}, reward_axis(least, most), 140);
  for (const RewardFigures::Length& length : figures.by_length) {
    const double from = std::max(1.0, static_cast<double>(length.from));
    plot.box(from, 0, std::max(1.04 * from, static_cast<double>(length.to)), length.mean, kBlue);
  }
  return plot.text();
}

}  // namespace paceline::app
