// Requests that change groups when some groups run dry while others are busy.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "runtime/policy/schedule/move_split.hpp"

namespace paceline::policy {

/// Room and costs of a group. Requests that are on their way count where they go.
struct GroupLoad {
  int room = 0;                      ///< further requests it could take
  const MoveCosts* costs = nullptr;  ///< of its steps, and of moves to it; null: unknown
};

/// A request that was leased and has not ended.
struct Movable {
  int group = 0;         ///< positions of its KV
  double positions = 0;  ///< of its KV
  double remaining = 0;  ///< expected tokens still to come
  bool bound = false;    ///< on a move already, and cannot make another
};

struct Transferral {
  std::size_t request = 0;  ///< index of the movable
  int to = 0;               ///< group
};

/// Seconds in which each of so many requests gets a token, at a mean context.
using TokenSeconds = std::function<double(double requests, double context)>;

/// Seconds until all requests of a group have ended: fewer and fewer take part in a step. The
/// second form decodes plainly; without costs a row takes a second.
[[nodiscard]] double drain_seconds(const TokenSeconds& seconds, std::span<const Movable> requests);
[[nodiscard]] double drain_seconds(const MoveCosts* costs, std::span<const Movable> requests);

/// Transferrals once nothing waits to be leased. Every group that has run dry gets requests of the
/// group that is expected to end last, as many as make the later of the two end soonest, with the
/// time of the moves; none where that is no sooner. So nothing moves where steps of fewer rows are
/// no faster, or where the rest takes less than the move. Requests with most to come move: they are
/// the fewest that make up the share.
///
/// Moving half of the requests, whatever they cost, would end as soon where rows are dear and moves
/// cheap, as a small model's on one node are: within 1 % in simulated runs. But it moves two to
/// three times as many where little is to be won: dearer than not moving at all by 1 to 3 % for
/// steps that wait for memory, and by up to a quarter over a slow link.
[[nodiscard]] std::vector<Transferral> rebalance(std::span<const GroupLoad> groups,
                                                 std::span<const Movable> requests);

}  // namespace paceline::policy
