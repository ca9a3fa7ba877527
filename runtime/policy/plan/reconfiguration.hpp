// How slow requests are drafted for while a run goes on (SpecActor, section 4.1, Algorithm 2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/speculation_mode.hpp"
#include "runtime/policy/plan/speculation_speed.hpp"

namespace paceline::policy {

/// Tokens of a request from one reconfiguration to the next: the paper's.
inline constexpr std::uint32_t kReconfigureEvery = 1000;

/// Whether a request whose response grew from `before` to `after` tokens has come to a
/// reconfiguration. `every`: at least 1.
[[nodiscard]] constexpr bool reconfiguration_due(std::uint32_t before, std::uint32_t after,
                                                 std::uint32_t every = kReconfigureEvery) {
  return before / every < after / every;
}

/// One way to draft for a request: by a drafter of the verifier's own (coupled), or by drafter
/// ranks (decoupled).
struct DraftingWay {
  SpeculationMode mode = SpeculationMode::coupled;
  SpeculationCosts costs;
  int longest_draft = 8;  ///< tokens; no window is larger
};

struct ReconfigurationFacts {
  std::vector<DraftingWay> ways;  ///< that a request can be moved between
  /// Requests of a step. 1 in the paper, for tail requests are what matters; but a batch that is
  /// still large is no place for their optimum.
  double batch = 1;
  double drafted_for = 1;  ///< requests that a drafter rank has, those of other groups included
};

struct RequestPlan {
  std::size_t request = 0;  ///< index
  SpeculationMode mode = SpeculationMode::plain;
  int window = 0;                ///< tokens; 0: plain
  double tokens_per_second = 0;  ///< as foreseen
};

/// Algorithm 2. acceptance: [requests, ways] of each that is active, as it was measured; a request
/// counts with its best way. due: [any] requests that have come to a reconfiguration. A plan for
/// each of those whose acceptance is below the mean of all, in their order. Where this departs from
/// the paper:
/// - There both ways draft with one model. Here each has an acceptance of its own, for the verifier
///   may draft with n-grams what drafter ranks draft with a model.
/// - What loses against plain decoding every way is decoded plainly, for all may be slower.
/// - A longer window must win half a percent, for what it wastes takes time of others that the
///   model of one request does not see.
[[nodiscard]] std::vector<RequestPlan> reconfigure(const ReconfigurationFacts& facts,
                                                   std::span<const double> acceptance,
                                                   std::span<const std::size_t> due);

}  // namespace paceline::policy
