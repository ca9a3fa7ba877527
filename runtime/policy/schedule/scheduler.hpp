// Decisions about requests and ranks: leases, moves, races, changes of roles. The coordinator asks
// for decisions and carries them out.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/move_split.hpp"
#include "runtime/policy/schedule/request_table.hpp"

namespace paceline::policy {

/// A verifier group, as decisions see it.
struct GroupState {
  GroupRanks ranks;
  int room = 0;     ///< further requests that it could take; leases on their way are subtracted
  int kv_room = 0;  ///< KV blocks that no request has, leases on their way included
  int active = 0;   ///< requests of its batch, without those that it only races for
  const MoveCosts* costs = nullptr;  ///< costs of its steps and of moves to it; null: unknown
};

/// The run at the time of a decision.
struct RunState {
  std::vector<GroupState> groups;   ///< by leader; without groups that are to end
  const RequestTable& requests;     ///< groups that are to end may hold some of them
  std::span<const Prompt> prompts;  ///< indexed by RequestId::prompt
  const Placement& placement;       ///< the current one
};

/// Order to lease a waiting request, until its response has `until` tokens.
struct LeaseOrder {
  RequestId id;
  std::uint32_t until = kToTheEnd;
  bool operator==(const LeaseOrder&) const = default;
};

/// Decision about a request at the end of its lease.
struct LeaseEnd {
  std::optional<std::uint32_t> renewed;  ///< the request stays, with a lease to so many tokens
  int to = kToTable;                     ///< its destination, where it does not stay
  bool operator==(const LeaseEnd&) const = default;
};

/// Order to a group to race for a request that another group holds.
struct RaceOrder {
  RequestId id;
  int group = 0;  ///< leader of the racing group
  int method = 0;
  bool operator==(const RaceOrder&) const = default;
};

/// Decides which group gets which request. Any answers generate the same responses. A state machine
/// without a clock; used by one thread.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  /// The next request to lease to the group; absent: none for now. Asked whenever the group has
  /// reported, and repeatedly until the answer is absent.
  [[nodiscard]] virtual std::optional<LeaseOrder> lease(const RunState& run,
                                                        const GroupState& group) = 0;
  /// Decides about a lease of the group that is about to end. The request is on no move.
  [[nodiscard]] virtual LeaseEnd at_end(const RunState& run, const GroupState& group,
                                        RequestId id) = 0;
  /// Moves of leased requests that are on no move yet, to other groups. Asked whenever a group has
  /// reported, if there are several groups.
  [[nodiscard]] virtual std::vector<RequestMove> moves(const RunState& run) = 0;
  /// Best-of-N: races for leased requests that are on no move. Asked after each moves().
  [[nodiscard]] virtual std::vector<RaceOrder> races(const RunState& /*run*/) { return {}; }
  /// The placement of the next epoch; absent where all ranks keep their roles. Asked whenever a
  /// group has reported and no change of roles is in progress.
  [[nodiscard]] virtual std::optional<Placement> placement(const RunState& run) = 0;
};

}  // namespace paceline::policy
