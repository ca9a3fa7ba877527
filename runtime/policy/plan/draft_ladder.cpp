#include "runtime/policy/plan/draft_ladder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/policy/plan/speculation_speed.hpp"

namespace paceline::policy {
namespace {

constexpr int kRungs = 20;      ///< acceptances 0, 0.05 ... 1; linear between them
constexpr int kShownRungs = 4;  ///< every fourth rung is shown
constexpr double kTail = 8;     ///< the ladder of a batch smaller by this factor is shown too

}  // namespace

double Ladder::speedup(double acceptance) const {
  const auto above = std::lower_bound(
      points.begin(), points.end(), acceptance,
      [](const LadderPoint& point, double value) { return point.acceptance < value; });
  if (above == points.begin()) return points.front().speedup;
  if (above == points.end()) return points.back().speedup;
  const LadderPoint& below = *(above - 1);
  const double share = (acceptance - below.acceptance) / (above->acceptance - below.acceptance);
  return below.speedup + share * (above->speedup - below.speedup);
}

std::vector<Ladder> build_ladders(const CostTable& table, const LadderLoad& load) {
  const double plain = plain_speed(table, load.context, load.batch).tokens_per_second;
  std::vector<Ladder> ladders;
  for (const DrafterCosts& drafter : table.drafters) {
    const SpeculationCosts costs{table, drafter, load.context,
                                 std::max(1, static_cast<int>(load.batch))};
    Ladder ladder{drafter.name, {}};
    for (int rung = 0; rung <= kRungs; ++rung) {
      LadderPoint point{static_cast<double>(rung) / kRungs, 0, 1};
      for (int w = 1; w <= load.longest_draft; ++w) {
        const double speedup =
            coupled_speed(costs, point.acceptance, w, load.batch).tokens_per_second / plain;
        if (speedup <= point.speedup) continue;
        point.speedup = speedup;
        point.draft_length = w;
      }
      ladder.points.push_back(point);
    }
    ladders.push_back(std::move(ladder));
  }
  return ladders;
}

std::vector<RankedMethod> rank_methods(const std::vector<Ladder>& ladders,
                                       const DraftHistory& history) {
  std::vector<RankedMethod> ranked;
  for (const Ladder& ladder : ladders) {
    const double acceptance = history.rate(ladder.method, kUnknownAcceptance);
    ranked.push_back({ladder.method, acceptance, ladder.speedup(acceptance)});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedMethod& a, const RankedMethod& b) {
    return a.speedup > b.speedup;
  });
  return ranked;
}

std::string ladder_text(const CostTable& table, const LadderLoad& most) {
  if (table.drafters.empty()) return "";
  std::string text;
  double last = 0;
  for (const double batch : {most.batch, std::floor(most.batch / kTail), 1.0}) {
    if (batch < 1 || batch == last) continue;
    last = batch;
    text += fmt::format("  {:>3.0f} {}", batch, batch == 1 ? "request " : "requests");
    const std::vector<Ladder> ladders =
        build_ladders(table, {batch, most.context, most.longest_draft});
    for (const Ladder& ladder : ladders) text += fmt::format("  {:>12}", ladder.method);
    text += "\n";
    for (int rung = 0; rung <= kRungs; rung += kShownRungs) {
      text += fmt::format("  {:>12.1f}", ladders.front().points[rung].acceptance);
      for (const Ladder& ladder : ladders) {
        const LadderPoint& point = ladder.points[rung];
        text +=
            fmt::format("  {:>{}}", fmt::format("{:.2f} ({})", point.speedup, point.draft_length),
                        std::max<std::size_t>(12, ladder.method.size()));
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace paceline::policy
