// Who gets what: which group is leased how many requests, which requests change groups or are raced
// for, and which ranks change roles. The coordinator asks, and carries it out.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/move_split.hpp"
#include "runtime/policy/schedule/request_table.hpp"

namespace paceline::policy {

/// A verifier group, as far as decisions go by it.
struct GroupState {
  GroupRanks ranks;
  int room = 0;     ///< further requests it could take, beside leases on their way
  int kv_room = 0;  ///< KV blocks that no request has, nor will have by leases on their way
  int active = 0;   ///< requests in its batch, but for those it only races for
  const MoveCosts* costs = nullptr;  ///< of its steps, and of moves to it; null: unknown
};

/// What is known of a run when something is to be decided.
struct RunState {
  std::vector<GroupState> groups;   ///< by leader; without those that are to end
  const RequestTable& requests;     ///< groups that are to end may hold some of them
  std::span<const Prompt> prompts;  ///< by the requests' index
  const Placement& placement;       ///< of now
};

/// A request that waits is to be leased, until its response has so many tokens.
struct LeaseOrder {
  RequestId id;
  std::uint32_t until = kToTheEnd;
  bool operator==(const LeaseOrder&) const = default;
};

/// What becomes of a request at the end of its lease.
struct LeaseEnd {
  std::optional<std::uint32_t> renewed;  ///< it goes on where it is, until then
  int to = kToTable;                     ///< else: where it goes
  bool operator==(const LeaseEnd&) const = default;
};

/// A group is to race for a request that another one holds, with a drafter by its index.
struct RaceOrder {
  RequestId id;
  int group = 0;  ///< leader
  int method = 0;
  bool operator==(const RaceOrder&) const = default;
};

/// Any answer generates the same responses. A state machine without a clock; used by one thread.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  /// The next request that the group is to be leased; nothing: none for now. Asked whenever the
  /// group has reported, and again until there is none.
  [[nodiscard]] virtual std::optional<LeaseOrder> lease(const RunState& run,
                                                        const GroupState& group) = 0;
  /// A lease of the group is about to end, of a request that is on no move.
  [[nodiscard]] virtual LeaseEnd at_end(const RunState& run, const GroupState& group,
                                        RequestId id) = 0;
  /// Requests that are leased, on no move, and are to go to another of the groups. Asked whenever a
  /// group has reported and there are several.
  [[nodiscard]] virtual std::vector<RequestMove> moves(const RunState& run) = 0;
  /// Best-of-N: who is to race for which requests, that are leased and on no move. Asked as for
  /// moves, and after them.
  [[nodiscard]] virtual std::vector<RaceOrder> races(const RunState& /*run*/) { return {}; }
  /// Another placement, of the next epoch; nothing where ranks are to stay what they are. Asked
  /// whenever a group has reported and no change of roles is under way.
  [[nodiscard]] virtual std::optional<Placement> placement(const RunState& run) = 0;
};

}  // namespace paceline::policy
