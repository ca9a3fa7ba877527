// For tests of exactness: a scheduler that moves requests, lets groups race and changes roles by
// chance.
#pragma once

#include <memory>
#include <random>
#include <span>
#include <vector>

#include "runtime/policy/schedule/scheduler.hpp"

namespace paceline::policy {

/// What of a run is left to chance.
struct Chance {
  /// Some request to some group, whenever a group reports; some back to the table when their leases
  /// end.
  bool moves = false;
  bool roles = false;                  ///< other places for ranks, again and again
  std::vector<int> tail_methods = {};  ///< by which ranks may then draft for one group
  int race_methods = 0;  ///< races of any group for any request, as often, by so many drafters
  std::uint64_t seed = 1;
};

/// The rest is another scheduler's.
class RandomScheduler final : public Scheduler {
 public:
  /// Where roles change, groups have the degrees that they have in `first`, and ranks draft if some
  /// do so there.
  RandomScheduler(std::unique_ptr<Scheduler> rest, const Placement& first, const Chance& chance);

  [[nodiscard]] std::optional<LeaseOrder> lease(const RunState& run,
                                                const GroupState& group) override {
    return rest_->lease(run, group);
  }
  [[nodiscard]] LeaseEnd at_end(const RunState& run, const GroupState& group,
                                RequestId id) override;
  [[nodiscard]] std::vector<RequestMove> moves(const RunState& run) override;
  [[nodiscard]] std::vector<RaceOrder> races(const RunState& run) override;
  [[nodiscard]] std::optional<Placement> placement(const RunState& run) override;

 private:
  std::unique_ptr<Scheduler> rest_;
  std::vector<int> degrees_;
  bool drafts_;
  Chance chance_;
  std::mt19937_64 random_;
  std::uint32_t epoch_ = 0;  ///< of the last placement seen
  int reports_ = 0;          ///< of groups, since then
};

/// Another placement, by a number that is like chance. About half of the groups and drafters stay.
/// Groups have one of `degrees`; there is at least one; drafter ranks for all groups come only
/// where `drafts`, and those for one group by one of `tail_methods`.
[[nodiscard]] Placement shuffled(const Placement& now, std::span<const int> degrees, bool drafts,
                                 std::uint64_t number, std::span<const int> tail_methods = {});

}  // namespace paceline::policy
