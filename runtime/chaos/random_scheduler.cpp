#include "runtime/chaos/random_scheduler.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace paceline::chaos {

using namespace policy;

RandomScheduler::RandomScheduler(std::unique_ptr<Scheduler> rest, const Placement& first,
                                 const Chance& chance)
    : rest_(std::move(rest)),
      degrees_(first.degrees()),
      drafts_(!first.drafters.empty()),
      chance_(chance),
      random_(chance.seed) {}

LeaseEnd RandomScheduler::at_end(const RunState& run, const GroupState& group, RequestId id) {
  if (chance_.moves && random_() % 3 == 0) return {};
  return rest_->at_end(run, group, id);
}

std::vector<RequestMove> RandomScheduler::moves(const RunState& run) {
  std::vector<RequestMove> moves = rest_->moves(run);  // asked anyhow: its races() depend on it
  if (!chance_.moves) return moves;
  const auto& leased = run.requests.leased();
  if (leased.empty()) return {};
  const auto& [id, request] =
      *std::next(leased.begin(), static_cast<std::ptrdiff_t>(random_() % leased.size()));
  const int to = run.groups[random_() % run.groups.size()].ranks.leader;
  if (request.group == to || run.requests.moves().contains(id)) return {};
  // A request that loses its KV in each move might never grow.
  constexpr int kMost = 16;
  auto& [tokens, moved] = moved_[id];
  if (std::exchange(tokens, request.tokens) != request.tokens) moved = 0;
  if (++moved > kMost) return {};
  return {{id, to}};
}

std::vector<RaceOrder> RandomScheduler::races(const RunState& run) {
  if (chance_.race_methods == 0) return rest_->races(run);
  const auto& leased = run.requests.leased();
  if (leased.empty()) return {};
  const auto& [id, request] =
      *std::next(leased.begin(), static_cast<std::ptrdiff_t>(random_() % leased.size()));
  const RaceOrder race{id, run.groups[random_() % run.groups.size()].ranks.leader,
                       static_cast<int>(random_() % chance_.race_methods)};
  const bool twice = std::ranges::any_of(run.requests.races(), [&](const auto& r) {
    return r.second.id == race.id && r.second.group == race.group;
  });
  const bool stays = std::ranges::any_of(
      run.groups, [&](const GroupState& g) { return g.ranks.leader == request.group; });
  if (request.group == race.group || twice || !stays || run.requests.moves().contains(id))
    return {};
  return {race};
}

std::optional<Placement> RandomScheduler::placement(const RunState& run) {
  constexpr int kReports = 6;  // least reports between two changes, so that work is done
  if (!chance_.roles) return rest_->placement(run);
  if (std::exchange(epoch_, run.placement.epoch) != run.placement.epoch) reports_ = 0;
  if (++reports_ < kReports) return std::nullopt;
  return shuffled(run.placement, degrees_, drafts_, random_(), chance_.tail_methods);
}

Placement shuffled(const Placement& now, std::span<const int> degrees, bool drafts,
                   std::uint64_t number, std::span<const int> tail_methods) {
  std::mt19937_64 random(number);
  const auto chance = [&](int of) { return static_cast<int>(random() % of); };
  Placement next;
  next.epoch = now.epoch + 1;
  next.ranks = now.ranks;
  std::vector<bool> free(now.ranks, true);
  for (const GroupRanks& g : now.groups) {
    if (chance(2) == 0) continue;
    next.groups.push_back(g);
    std::fill_n(free.begin() + g.leader, g.tp, false);
  }
  for (const DrafterPlace& d : now.drafters) {
    if (chance(2) == 0) continue;
    next.drafters.push_back(d);
    free[d.rank] = false;
  }
  const auto fits = [&](int rank, int degree) {
    return rank % degree == 0 && rank + degree <= now.ranks &&
           std::all_of(free.begin() + rank, free.begin() + rank + degree,
                       [](bool is) { return is; });
  };
  for (int rank = 0; rank < now.ranks; ++rank) {
    if (!free[rank]) continue;
    if ((drafts || !tail_methods.empty()) && rank > 0 && chance(4) == 0) {
      next.drafters.push_back({rank, next.epoch});
      free[rank] = false;
      continue;
    }
    if (chance(6) == 0) continue;  // spare
    const int degree = degrees[chance(static_cast<int>(degrees.size()))];
    if (!fits(rank, degree)) continue;
    next.groups.push_back({rank, degree});
    std::fill_n(free.begin() + rank, degree, false);
  }
  const auto by_leader = [](const GroupRanks& a, const GroupRanks& b) {
    return a.leader < b.leader;
  };
  const auto by_rank = [](const DrafterPlace& a, const DrafterPlace& b) { return a.rank < b.rank; };
  std::ranges::sort(next.groups, by_leader);
  std::ranges::sort(next.drafters, by_rank);
  if (next.groups.empty()) return now;
  for (DrafterPlace& d : next.drafters) {
    const auto serves = [&](const GroupRanks& group) { return group.leader == d.group; };
    const bool lost = d.method && std::ranges::none_of(next.groups, serves);
    if (tail_methods.empty() || (!lost && (d.since < next.epoch || (drafts && chance(2) == 0))))
      continue;
    d.since = next.epoch;
    d.method = tail_methods[chance(static_cast<int>(tail_methods.size()))];
    d.group = next.groups[chance(static_cast<int>(next.groups.size()))].leader;
  }
  // A drafter rank that keeps its method and group keeps its `since`.
  for (DrafterPlace& d : next.drafters) {
    const auto was = std::ranges::find_if(now.drafters, [&](const DrafterPlace& n) {
      return n.rank == d.rank && n.method == d.method && n.group == d.group;
    });
    if (was != now.drafters.end()) d.since = was->since;
  }
  return next;
}

}  // namespace paceline::chaos
