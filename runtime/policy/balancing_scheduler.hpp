// The scheduler of runs: fills groups, shares out the end, and moves requests to groups that run
// dry. Ranks stay what they are.
#pragma once

#include <cstddef>

#include "runtime/policy/scheduler.hpp"

namespace paceline::policy {

class BalancingScheduler final : public Scheduler {
 public:
  /// `rebalance`: whether requests move, by policy::rebalance().
  explicit BalancingScheduler(bool rebalance) : rebalance_(rebalance) {}

  [[nodiscard]] int leases(const RunState& run, const GroupState& group) override;
  [[nodiscard]] std::vector<RequestMove> moves(const RunState& run) override;
  [[nodiscard]] std::optional<Placement> placement(const RunState&) override {
    return std::nullopt;
  }

 private:
  [[nodiscard]] bool worth_a_look(const RunState& run);

  bool rebalance_;
  std::size_t dry_ = 0;          ///< groups that had run dry when last looked
  std::size_t passed_over_ = 0;  ///< times asked since requests were last looked at
};

}  // namespace paceline::policy
