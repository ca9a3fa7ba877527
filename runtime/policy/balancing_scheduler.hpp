// The scheduler of runs: fills groups, shares out the end, moves requests to groups that run dry,
// and lets those race that get none. Ranks stay what they are.
#pragma once

#include <cstddef>

#include "runtime/policy/racing.hpp"
#include "runtime/policy/scheduler.hpp"

namespace paceline::policy {

class BalancingScheduler final : public Scheduler {
 public:
  /// `rebalance`: whether requests move, by policy::rebalance(). `racing`: without methods no group
  /// races.
  explicit BalancingScheduler(bool rebalance, const RacingOptions& racing = {})
      : rebalance_(rebalance), racing_(racing) {}

  [[nodiscard]] int leases(const RunState& run, const GroupState& group) override;
  [[nodiscard]] std::vector<RequestMove> moves(const RunState& run) override;
  [[nodiscard]] std::vector<RaceOrder> races(const RunState& run) override;
  [[nodiscard]] std::optional<Placement> placement(const RunState&) override {
    return std::nullopt;
  }

 private:
  [[nodiscard]] bool worth_a_look(const RunState& run);

  bool rebalance_;
  RacingOptions racing_;
  std::size_t dry_ = 0;          ///< groups that had run dry when last looked
  std::size_t passed_over_ = 0;  ///< times asked since requests were last looked at
  bool looks_ = false;           ///< they are, since moves() was last asked
};

}  // namespace paceline::policy
