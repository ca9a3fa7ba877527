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
/// Halvings of the interval in which the share of the larger groups' requests lies:
/// enough to find one request among 4,096.
constexpr int kHalvings = 12;

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

  [[nodiscard]] std::optional<Placement> next() {
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

  /// Groups of the degree that may join, and groups of twice this degree.
  struct Mix {
    std::size_t small = 0;
    std::size_t large = 0;
  };

  /// Share of the requests that the larger groups get if all requests are to advance alike, as far
  /// as these groups hold so many.
  [[nodiscard]] double share_of_large(const Mix& mix, double requests, double context) const {
    if (mix.small == 0 || mix.large == 0) return mix.small == 0 ? 1 : 0;
    const auto seconds = [&](const CostTable& costs, double held, std::size_t groups) {
      return token_seconds(costs, std::max(1.0, held / static_cast<double>(groups)), context);
    };
    double less = 0;
    double more = 1;
    for (int halving = 0; halving < kHalvings; ++halving) {
      const double share = (less + more) / 2;
      const bool faster = seconds(*larger_, share * requests, mix.large) <
                          seconds(*now_, (1 - share) * requests, mix.small);
      (faster ? less : more) = share;
    }
    return std::min(more, static_cast<double>(mix.large) * options_.max_batch / requests);
  }

  /// Seconds in which each request has got a token: those of the slower kind of groups.
  [[nodiscard]] double pace(const Mix& mix, double requests, double context) const {
    const double share = share_of_large(mix, requests, context);
    const auto seconds = [&](const CostTable& costs, double held, std::size_t groups) {
      if (held <= 0) return 0.0;
      return token_seconds(costs, std::max(1.0, held / static_cast<double>(groups)), context);
    };
    return std::max(seconds(*larger_, share * requests, mix.large),
                    seconds(*now_, (1 - share) * requests, mix.small));
  }

  /// Seconds until the last request has ended. Requests are dealt out by falling length, the larger
  /// groups' share to these, which get the longest one.
  [[nodiscard]] double end(const Mix& mix, double context) const {
    std::vector<std::size_t> order(balance_.requests.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return balance_.requests[a].remaining > balance_.requests[b].remaining;
    });
    const auto requests = static_cast<double>(order.size());
    const double share = share_of_large(mix, requests, context);
    std::vector<Movable> of_large;  // requests of the larger group that gets the longest one
    std::vector<Movable> of_small;
    std::size_t to_large = 0;
    std::size_t to_small = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Movable& request = balance_.requests[order[i]];
      if (share > 0 && static_cast<double>(i) * share >= static_cast<double>(to_large)) {
        if (to_large++ % mix.large == 0) of_large.push_back(request);
      } else if (to_small++ % mix.small == 0) {
        of_small.push_back(request);
      }
    }
    const auto seconds = [&](const CostTable& costs, const std::vector<Movable>& dealt) {
      return drain_seconds([&](double held, double at) { return token_seconds(costs, held, at); },
                           dealt);
    };
    return std::max(seconds(*larger_, of_large), seconds(*now_, of_small));
  }

  /// Seconds in which each of a group's requests gets a token, with the best draft length.
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

  [[nodiscard]] bool pays() {
    const std::size_t groups = run_.groups.size();
    if (!fits(groups - pairs_.size())) return false;
    const int degree = pairs_.front().joined.tp / 2;
    now_ = &options_.costs.at(degree);
    larger_ = &options_.costs.at(2 * degree);
    Mix before;
    for (const GroupState& group : run_.groups)
      ++(group.ranks.tp > degree ? before.large : before.small);
    const Mix after{before.small - 2 * pairs_.size(), before.large + pairs_.size()};
    double change = options_.change_seconds;
    if (groups == 2) {
      for (const Movable& request : balance_.requests)
        change += larger_->recompute_seconds(request.positions, 0);
    }
    const auto requests = static_cast<double>(balance_.requests.size());
    double context = 0;
    for (const Movable& request : balance_.requests) context += request.positions / requests;
    return pace(before, requests, context) > kLeastGain * pace(after, requests, context) &&
           end(before, context) > end(after, context) + change;
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
  const CostTable* now_ = nullptr;     ///< costs of the degree that may join
  const CostTable* larger_ = nullptr;  ///< costs of twice this degree, and of larger ones
};

}  // namespace

std::optional<Placement> grown_placement(const RunState& run, const GrowthOptions& options) {
  if (options.costs.empty() || !run.requests.waiting().empty() || !run.requests.races().empty() ||
      run.groups.size() != run.placement.groups.size())
    return std::nullopt;
  return Growth(run, options).next();
}

}  // namespace paceline::policy
