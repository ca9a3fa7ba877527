// Requests that change groups when some groups run dry or end sooner than others.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "runtime/policy/schedule/move_split.hpp"

namespace paceline::policy {

/// Room and costs of a group. A request on a move counts at its destination.
struct GroupLoad {
  int room = 0;                      ///< further requests that it could take
  const MoveCosts* costs = nullptr;  ///< costs of its steps and of moves to it; null: unknown
  double drafted = 0;                ///< drafted rows that a step has for each request
};
/// Seconds in which each of so many requests of the group gets a token, on average: those of a step
/// over the tokens that it brings a request. Where the group's costs are unknown, the number of
/// requests stands for them.
[[nodiscard]] double token_seconds(const GroupLoad& group, double requests, double context);

/// A request that was leased and has not ended.
struct Movable {
  int group = 0;         ///< index of the group that holds it, or that it is on its way to
  double positions = 0;  ///< positions of its KV
  double remaining = 0;  ///< expected tokens still to come
  bool bound = false;    ///< on a move already, so it cannot make another
};

struct Transferral {
  std::size_t request = 0;  ///< index of the request
  int to = 0;               ///< index of the destination
};

/// Seconds in which each of `requests` requests gets a token, at a mean context of `context`
/// positions.
using TokenSeconds = std::function<double(double requests, double context)>;

/// Seconds until all requests of a group have ended; fewer and fewer take part in a step.
[[nodiscard]] double drain_seconds(const TokenSeconds& seconds, std::span<const Movable> requests);

/// Transferrals once no request waits to be leased. Every group that has run dry gets requests of
/// the group that is expected to end last: the number with which the later of the two ends soonest,
/// the time of the moves included; none where it would not end sooner. So nothing moves where steps
/// of fewer rows are no faster, or where the rest takes less time than the move. The requests with
/// the most tokens to come move, for then the fewest moves do.
///
/// Then requests move between busy groups in the same way, to the group that is expected to end
/// first, from those that are expected to end more than a twentieth later, as far as this saves a
/// twentieth. Where groups have joined, the larger ones get requests of the others until all
/// advance alike: nobody knows which of the last requests will be the longest.
///
/// A simpler rule, always moving half of the requests, ends as soon where rows are expensive and
/// moves cheap, as with a small model on one node: within 1 % in simulated runs. But it moves two
/// to three times as many requests where there is little to gain. It then takes longer than no
/// moves at all: by 1 to 3 % for steps that wait for memory, and by up to a quarter over a slow
/// link.
[[nodiscard]] std::vector<Transferral> rebalance(std::span<const GroupLoad> groups,
                                                 std::span<const Movable> requests);

/// The first part of rebalance(): moves to groups that have run dry alone.
[[nodiscard]] std::vector<Transferral> fill_dry(std::span<const GroupLoad> groups,
                                                std::span<const Movable> requests);

}  // namespace paceline::policy
