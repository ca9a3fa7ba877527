// Who drafts for requests that accept little, and how far: Algorithm 2 of SpecActor
// (runtime/policy/plan/reconfiguration.hpp) while a verifier runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/speculation_mode.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/policy/plan/reconfiguration.hpp"
#include "runtime/speculation/drafter_roster.hpp"

namespace paceline::speculation {

/// How requests are reconfigured.
struct Reconfiguration {
  std::uint32_t every = policy::kReconfigureEvery;  ///< tokens of a request; at least 1
  CostTable costs;                                  ///< of the verifier's steps
  int window = 8;                 ///< tokens that drafter ranks run ahead by, without a plan
  double groups_per_drafter = 1;  ///< verifier groups that a drafter rank drafts for
  int max_batch = 64;             ///< requests of one call of a drafter
};

/// A request that is drafted for in another way from now on.
struct PlannedRequest {
  RequestId id;
  std::uint32_t tokens = 0;  ///< the response's tokens by now
  SpeculationMode mode = SpeculationMode::plain;
  std::uint32_t longest_draft = 0;  ///< tokens; 0: none
};

/// The plans of a verifier's requests. A request comes to a reconfiguration every so many tokens of
/// its response. Where it accepts less than the mean it gets a plan, which holds until its next
/// reconfiguration; otherwise it is treated like all others, without a plan. A plan is forgotten
/// where its request goes elsewhere. Not thread-safe.
class RequestPlans {
 public:
  /// No drafters and no reconfigurations: no request gets a plan.
  RequestPlans() = default;
  /// `longest_draft`: of any request. Throws std::invalid_argument unless the costs of each drafter
  /// are known.
  RequestPlans(Reconfiguration how, const DrafterRoster& roster, int longest_draft);

  /// A request begins, with `response` tokens of its response there already.
  void start(RequestId id, std::uint32_t response);
  void leave(RequestId id) { requests_.erase(id); }

  /// The request's plan; null: it has none. Valid until the next call that is not const.
  [[nodiscard]] const policy::RequestPlan* find(RequestId id) const;
  /// Whether the drafter is to draft for a request with this plan; null: without one.
  [[nodiscard]] static bool wants(const policy::RequestPlan* plan, const RosterEntry& drafter);

  /// Takes in a step's commits. `batch`: requests that decoded. Finished requests are forgotten.
  void commit(std::span<const engine::Committed> committed, int batch);
  /// Requests of the last commit() that have come to a reconfiguration, in its order.
  [[nodiscard]] std::span<const RequestId> due() const { return due_; }
  /// Reconfigures the requests that are due, and tells drafters that run ahead. `context`:
  /// positions that the step's requests attend to, on average. `acceptance`: [requests of the last
  /// commit() that go on, drafters] P(next drafted token is accepted).
  void reconfigure(const DrafterRoster& roster, double context, std::span<const double> acceptance);
  /// Requests that reconfigure() has changed since the last commit().
  [[nodiscard]] std::span<const PlannedRequest> changed() const { return changed_; }

 private:
  struct FollowedRequest {
    std::uint32_t response = 0;               ///< tokens
    std::optional<policy::RequestPlan> plan;  ///< absent: the request is treated like all others
    int plan_batch = 0;                       ///< decoding requests when the plan was made
  };
  void adopt(const DrafterRoster& roster, RequestId id, std::optional<policy::RequestPlan> plan);

  std::optional<Reconfiguration> how_;
  int longest_draft_ = 0;
  std::map<RequestId, FollowedRequest> requests_;
  int batch_ = 0;                       ///< of the last commit()
  std::vector<RequestId> due_;          ///< requests of the last commit()
  std::vector<std::size_t> due_index_;  ///< [due] index among that commit's requests that go on
  std::vector<PlannedRequest> changed_;
};

}  // namespace paceline::speculation
