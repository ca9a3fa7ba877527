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
/// Seconds in which each of `requests` requests of the group gets a token, on average: the seconds
/// of a step divided by the tokens that a request gets in it. If the group's costs are unknown,
/// returns `requests` instead.
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

/// Seconds until all requests of a group have ended. Requests that have ended leave the steps.
[[nodiscard]] double drain_seconds(const TokenSeconds& seconds, std::span<const Movable> requests);

/// Transferrals when no request waits to be leased. Every group that has run dry gets requests of
/// the group that is expected to end last. Their number lets the later of the two groups end
/// soonest, the time of the moves included. Nothing moves if it would not end sooner, for instance
/// if steps of fewer rows are no faster, or if the rest takes less time than a move. The requests
/// with the most tokens to come move, because then the fewest moves are needed.
///
/// Then requests move between busy groups in the same way, to the group that is expected to end
/// first, from groups that are expected to end more than a twentieth later, if this saves a
/// twentieth. If some groups have joined, the larger groups get requests of the others until all
/// requests advance alike: nobody knows which of the last requests will be the longest.
///
/// A simpler rule always moves half of the requests. If rows are expensive and moves cheap, as with
/// a small model on one node, simulated runs end within 1 % of the same time. But the simpler rule
/// moves two to three times as many requests if there is little to gain. Runs then take longer than
/// with no moves: by 1 to 3 % if steps wait for memory, and by up to a quarter over a slow link.
[[nodiscard]] std::vector<Transferral> rebalance(std::span<const GroupLoad> groups,
                                                 std::span<const Movable> requests);

/// The first part of rebalance(): moves only to groups that have run dry.
[[nodiscard]] std::vector<Transferral> fill_dry(std::span<const GroupLoad> groups,
                                                std::span<const Movable> requests);

}  // namespace paceline::policy
