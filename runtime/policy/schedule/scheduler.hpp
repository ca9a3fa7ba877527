// Decisions about requests and ranks: leases, moves, races, changes of roles. The coordinator asks
// for them, and carries them out.
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
  int room = 0;     ///< further requests it could take, beside leases on their way
  int kv_room = 0;  ///< KV blocks that no request has or will have by leases on their way
  int active = 0;   ///< requests of its batch, without those it only races for
  const MoveCosts* costs = nullptr;  ///< of its steps, and of moves to it; null: unknown
};

/// The run at the time of a decision.
struct RunState {
  std::vector<GroupState> groups;   ///< by leader; without groups that are to end
  const RequestTable& requests;     ///< groups that are to end may hold some of them
  std::span<const Prompt> prompts;  ///< by the requests' index
  const Placement& placement;       ///< the current one
};

/// Order to lease a waiting request, until its response has `until` tokens.
struct LeaseOrder {
  RequestId id;
  std::uint32_t until = kToTheEnd;
  bool operator==(const LeaseOrder&) const = default;
};

/// The fate of a request at the end of its lease.
struct LeaseEnd {
  std::optional<std::uint32_t> renewed;  ///< the request stays, with a lease until then
  int to = kToTable;                     ///< else its destination
  bool operator==(const LeaseEnd&) const = default;
};

/// Order to race for a request that another group holds, with a drafter by its index.
struct RaceOrder {
  RequestId id;
  int group = 0;  ///< leader
  int method = 0;
  bool operator==(const RaceOrder&) const = default;
};

/// Decides who gets what. Any answer generates the same responses. A state machine without a clock;
/// used by one thread.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  /// The next request to lease to the group; nothing: none for now. Asked whenever the group has
  /// reported, and again until there is none.
  [[nodiscard]] virtual std::optional<LeaseOrder> lease(const RunState& run,
                                                        const GroupState& group) = 0;
  /// Decides about a lease of the group that is about to end, for a request on no move.
  [[nodiscard]] virtual LeaseEnd at_end(const RunState& run, const GroupState& group,
                                        RequestId id) = 0;
  /// Moves of leased requests, on no move yet, to other groups. Asked whenever a group has reported
  /// and there are several.
  [[nodiscard]] virtual std::vector<RequestMove> moves(const RunState& run) = 0;
  /// Best-of-N: races for leased requests on no move. Asked when moves are, after them.
  [[nodiscard]] virtual std::vector<RaceOrder> races(const RunState& /*run*/) { return {}; }
  /// The placement of the next epoch; nothing where ranks stay what they are. Asked whenever a
  /// group has reported and no change of roles is under way.
  [[nodiscard]] virtual std::optional<Placement> placement(const RunState& run) = 0;
};

}  // namespace paceline::policy
