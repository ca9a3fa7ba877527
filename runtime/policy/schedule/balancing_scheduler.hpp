// The scheduler of runs. It fills groups chunk by chunk (Seer, section 4.2), shares out the last
// requests, and moves requests to groups that run dry or are ahead. Ranks of groups without
// requests draft for other groups, groups join into larger ones, and groups that are left without
// work race.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "runtime/policy/schedule/growth.hpp"
#include "runtime/policy/schedule/leases.hpp"
#include "runtime/policy/schedule/racing.hpp"
#include "runtime/policy/schedule/scheduler.hpp"
#include "runtime/policy/schedule/tail_drafters.hpp"

namespace paceline::policy {

struct BalancingOptions {
  LeaseTerms terms = {};
  bool rebalance = true;      ///< requests move to groups that run dry or are ahead, by rebalance()
  double drafted = 0;         ///< drafted rows that a step has for each request, by estimate
  bool shares = true;         ///< near the end no group takes more than its share
  RacingOptions racing = {};  ///< no group races where it has no methods
  TailOptions tail = {};      ///< no freed rank drafts where it has no methods
  GrowthOptions growth = {};  ///< no groups join where it has no costs
};

class BalancingScheduler final : public Scheduler {
 public:
  explicit BalancingScheduler(BalancingOptions options) : options_(std::move(options)) {}

  [[nodiscard]] std::optional<LeaseOrder> lease(const RunState& run,
                                                const GroupState& group) override;
  /// A request gives way to a waiting one that goes before it in the table's order. It also leaves
  /// where the group's KV has no room for its next chunk: it then waits for room in any group.
  [[nodiscard]] LeaseEnd at_end(const RunState& run, const GroupState& group,
                                RequestId id) override;
  [[nodiscard]] std::vector<RequestMove> moves(const RunState& run) override;
  [[nodiscard]] std::vector<RaceOrder> races(const RunState& run) override;
  [[nodiscard]] std::optional<Placement> placement(const RunState& run) override;

 private:
  [[nodiscard]] bool worth_a_look(const RunState& run);
  [[nodiscard]] bool uneven(const RunState& run) const;
  [[nodiscard]] bool grows_due(const RunState& run);
  [[nodiscard]] bool would_balance(const RunState& run) const;
  [[nodiscard]] std::optional<Placement> tail(const RunState& run) const;

  BalancingOptions options_;
  std::size_t dry_ = 0;          ///< groups that were dry at the last report
  std::size_t passed_over_ = 0;  ///< reports since moves() last looked at requests
  bool looks_ = false;           ///< the last moves() looked; races() does then, if a group is dry
  std::optional<Placement> next_;  ///< placement found by races() after the last moves()
  std::size_t since_growth_ = 0;   ///< reports since joining groups was last considered
};

}  // namespace paceline::policy
