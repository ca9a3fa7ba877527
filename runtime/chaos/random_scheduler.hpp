// A scheduler that moves requests, lets groups race and changes roles at random, for tests of
// exactness.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "runtime/policy/schedule/scheduler.hpp"

namespace paceline::chaos {

/// Decisions that are made at random.
struct Chance {
  /// Requests move: whenever a group reports, a random request to a random group, unless it has
  /// moved many times without growing; and some back to the table when their leases end.
  bool moves = false;
  bool roles = false;                  ///< ranks change roles repeatedly
  std::vector<int> tail_methods = {};  ///< drafters of ranks that draft for one group
  int race_methods = 0;                ///< drafters of random races; 0: no random races
  std::uint64_t seed = 1;
};

/// Makes the decisions of Chance at random, and leaves all others to another scheduler.
class RandomScheduler final : public policy::Scheduler {
 public:
  /// `first`: the first placement. Where roles change, groups have its degrees, and ranks draft for
  /// all groups only if some do so in it.
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
  std::uint32_t epoch_ = 0;  ///< epoch of the last placement seen
  int reports_ = 0;          ///< reports of groups since then
  /// The known length of each request at its last move, and its moves since it had this length.
  std::map<RequestId, std::pair<std::uint32_t, int>> moved_;
};

/// Another placement, a pseudo-random function of `number`. About half of the groups and drafters
/// stay. Each group has one of `degrees`; there is at least one group. New drafter ranks draft for
/// all groups only if `drafts`; ranks that draft for one group use one of `tail_methods`.
[[nodiscard]] policy::Placement shuffled(const policy::Placement& now, std::span<const int> degrees,
                                         bool drafts, std::uint64_t number,
                                         std::span<const int> tail_methods = {});

}  // namespace paceline::chaos
