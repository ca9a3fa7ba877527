#include "runtime/policy/schedule/growth.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "runtime/policy/plan/speculation_speed.hpp"
#include "runtime/policy/schedule/balance.hpp"

namespace paceline::policy {
namespace {

/// Least gain that is worth a change of roles, as in tail_drafters.cpp: a smaller one is within the
/// noise of an estimate.
constexpr double kLeastGain = 1.02;

/// Two groups that could join.
struct Pair {
  GroupRanks joined;
  int held = 0;  ///< requests that the two have or are to get, together
  int room = 0;  ///< further requests that the two could take, together
};

class Growth {
 public:
  Growth(const RunState& run, const GrowthOptions& options)
      : run_(run), options_(options), balance_(run), held_(run.groups.size(), 0) {
    for (const Movable& request : balance_.requests) ++held_[request.group];
    find_pairs();
  }

  [[nodiscard]] std::optional<Placement> next() const {
    if (balance_.requests.empty() || pairs_.empty() || !pays()) return std::nullopt;
    const std::size_t most = joining();
    if (most == 0) return std::nullopt;
    Placement next = run_.placement;
    ++next.epoch;
    for (std::size_t p = 0; p < most; ++p) {
      const GroupRanks joined = pairs_[p].joined;
      std::erase_if(next.groups,
                    [&](const GroupRanks& g) { return g.leader == joined.leader + joined.tp / 2; });
      std::find_if(next.groups.begin(), next.groups.end(), [&](const GroupRanks& g) {
        return g.leader == joined.leader;
      })->tp = joined.tp;
    }
    return next;
  }

 private:
  /// Finds the pairs of the smallest degree that has pairs; those with the fewest requests come
  /// first.
  void find_pairs() {
    int degree = 0;
    for (std::size_t g = 0; g + 1 < run_.groups.size(); ++g) {
      const GroupRanks& first = run_.groups[g].ranks;
      const GroupRanks& second = run_.groups[g + 1].ranks;
      const int tp = first.tp;
      const bool neighbours =
          first.leader % (2 * tp) == 0 && second.tp == tp && second.leader == first.leader + tp &&
          options_.node_of_rank[first.leader] == options_.node_of_rank[second.leader + tp - 1];
      if (!neighbours || !options_.costs.contains(2 * tp) || (degree != 0 && tp > degree)) continue;
      if (tp < degree) pairs_.clear();
      degree = tp;
      pairs_.push_back({{first.leader, 2 * tp},
                        held_[g] + held_[g + 1],
                        balance_.loads[g].room + balance_.loads[g + 1].room});
    }
    std::stable_sort(pairs_.begin(), pairs_.end(),
                     [](const Pair& a, const Pair& b) { return a.held < b.held; });
  }

  /// Seconds until the last request has ended, if requests are dealt out to so many groups by
  /// falling length.
  [[nodiscard]] double end(const CostTable& costs, std::size_t groups) const {
    std::vector<std::size_t> order(balance_.requests.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return balance_.requests[a].remaining > balance_.requests[b].remaining;
    });
    std::vector<Movable> dealt;  // requests of the group that gets the longest one
    for (std::size_t i = 0; i < order.size(); i += groups)
      dealt.push_back(balance_.requests[order[i]]);
    return drain_seconds(
        [&](double requests, double context) { return token_seconds(costs, requests, context); },
        dealt);
  }

  /// Seconds in which each of a group's requests gets a token, with the best window.
  [[nodiscard]] double token_seconds(const CostTable& costs, double requests,
                                     double context) const {
    double best = plain_speed(costs, context, requests).tokens_per_second;
    if (options_.drafter) {
      const SpeculationCosts both{costs, options_.drafter->costs, context, options_.max_batch};
      const double p = options_.drafter->acceptance;
      const double drafted_for = static_cast<double>(balance_.requests.size()) / options_.drafters;
      for (int w = 1; w <= options_.longest_draft; ++w) {
        const Speed speed = options_.mode == SpeculationMode::decoupled
                                ? decoupled_speed(both, p, w, requests, drafted_for)
                                : coupled_speed(both, p, w, requests);
        best = std::max(best, speed.tokens_per_second);
      }
    }
    return 1 / best;
  }

  /// Whether so many groups have room for all requests at their expected lengths.
  [[nodiscard]] bool fits(std::size_t groups) const {
    double blocks = 0;
    for (const Movable& request : balance_.requests)
      blocks += (request.positions + request.remaining) / options_.kv_block + 1;
    const auto count = static_cast<double>(groups);
    return blocks <= count * options_.kv_blocks &&
           static_cast<double>(balance_.requests.size()) <= count * options_.max_batch;
  }

  [[nodiscard]] bool pays() const {
    if (!fits(run_.groups.size() - pairs_.size())) return false;
    const CostTable& larger = options_.costs.at(pairs_.front().joined.tp);
    const CostTable& now = options_.costs.at(pairs_.front().joined.tp / 2);
    const std::size_t groups = run_.groups.size();
    double change = options_.change_seconds;
    if (groups == 2) {
      for (const Movable& request : balance_.requests)
        change += larger.recompute_seconds(request.positions, 0);
    }
    const auto requests = static_cast<double>(balance_.requests.size());
    double context = 0;
    for (const Movable& request : balance_.requests) context += request.positions / requests;
    const std::size_t left = groups - pairs_.size();
    const auto pace = [&](const CostTable& costs, std::size_t of) {
      return token_seconds(costs, std::max(1.0, requests / static_cast<double>(of)), context);
    };
    return pace(now, groups) > kLeastGain * pace(larger, left) &&
           end(now, groups) > end(larger, left) + change;
  }

  /// Number of pairs that join now: at most half of them, and no more than there are requests. It
  /// ends where the other groups have no room for the pairs' requests.
  [[nodiscard]] std::size_t joining() const {
    const std::size_t half = (pairs_.size() + 1) / 2;
    int room = 0;
    for (const GroupLoad& load : balance_.loads) room += std::max(0, load.room);
    int displaced = 0;
    std::size_t count = 0;
    while (count < std::min(half, balance_.requests.size())) {
      displaced += pairs_[count].held;
      room -= std::max(0, pairs_[count].room);
      if (displaced > room && run_.groups.size() > 2) break;
      ++count;
    }
    return count;
  }

  const RunState& run_;
  const GrowthOptions& options_;
  Balance balance_;
  std::vector<int> held_;  ///< [groups] requests of each
  std::vector<Pair> pairs_;
};

}  // namespace

std::optional<Placement> grown_placement(const RunState& run, const GrowthOptions& options) {
  if (options.costs.empty() || !run.requests.waiting().empty() || !run.requests.races().empty() ||
      run.groups.size() != run.placement.groups.size())
    return std::nullopt;
  return Growth(run, options).next();
}

}  // namespace paceline::policy
