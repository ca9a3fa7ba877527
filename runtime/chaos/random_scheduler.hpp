// A scheduler that moves requests, lets groups race and changes roles by chance. For tests of
// exactness.
#pragma once

#include <memory>
#include <random>
#include <span>
#include <vector>

#include "runtime/policy/schedule/scheduler.hpp"

namespace paceline::chaos {

/// Decisions that are left to chance.
struct Chance {
  /// Requests move: some to some group, whenever a group reports; some back to the table when their
  /// leases end.
  bool moves = false;
  bool roles = false;                  ///< ranks change places, again and again
  std::vector<int> tail_methods = {};  ///< drafters by which ranks may then draft for one group
  int race_methods = 0;  ///< drafters of random races, of any group for any request; 0: none
  std::uint64_t seed = 1;
};

/// Leaves all other decisions to another scheduler.
class RandomScheduler final : public policy::Scheduler {
 public:
  /// `first`: where roles change, groups keep to its degrees, and ranks draft if some do in it.
  RandomScheduler(std::unique_ptr<policy::Scheduler> rest, const policy::Placement& first,
                  const Chance& chance);

  [[nodiscard]] std::optional<policy::LeaseOrder> lease(const policy::RunState& run,
                                                        const policy::GroupState& group) override {
    return rest_->lease(run, group);
  }
  [[nodiscard]] policy::LeaseEnd at_end(const policy::RunState& run,
                                        const policy::GroupState& group, RequestId id) override;
  [[nodiscard]] std::vector<policy::RequestMove> moves(const policy::RunState& run) override;
  [[nodiscard]] std::vector<policy::RaceOrder> races(const policy::RunState& run) override;
  [[nodiscard]] std::optional<policy::Placement> placement(const policy::RunState& run) override;

 private:
  std::unique_ptr<policy::Scheduler> rest_;
  std::vector<int> degrees_;
  bool drafts_;
  Chance chance_;
  std::mt19937_64 random_;
  std::uint32_t epoch_ = 0;  ///< of the last placement seen
  int reports_ = 0;          ///< reports of groups, since then
};

/// Another placement, pseudo-random by `number`. About half of the groups and drafters stay. Groups
/// have one of `degrees`, and there is at least one. Drafter ranks for all groups come only where
/// `drafts`, drafter ranks for one group by one of `tail_methods`.
[[nodiscard]] policy::Placement shuffled(const policy::Placement& now, std::span<const int> degrees,
                                         bool drafts, std::uint64_t number,
                                         std::span<const int> tail_methods = {});

}  // namespace paceline::chaos
