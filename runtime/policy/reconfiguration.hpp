// How slow requests are drafted for while a run goes on (SpecActor, section 4.1, Algorithm 2). No
// run calls it yet.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/speculation_mode.hpp"
#include "runtime/policy/speculation_speed.hpp"

namespace paceline::policy {

/// Tokens of a request from one reconfiguration to the next: the paper's.
inline constexpr std::uint32_t kReconfigureEvery = 1000;

/// Whether a request whose response grew from `before` to `after` tokens has come to a
/// reconfiguration. `every`: at least 1.
[[nodiscard]] constexpr bool reconfiguration_due(std::uint32_t before, std::uint32_t after,
                                                 std::uint32_t every = kReconfigureEvery) {
  return before / every < after / every;
}

/// What a request can be moved between. Either way may be absent: a job without drafter ranks, or
/// verifiers that have no drafter of their own.
struct ReconfigurationFacts {
  std::optional<SpeculationCosts> coupled;    ///< with the verifier's own drafter
  std::optional<SpeculationCosts> decoupled;  ///< with that of drafter ranks
  int longest_draft = 8;                      ///< tokens; no window is larger
  /// Requests that verifiers and drafter ranks are taken to have: 1 in the paper, for tail requests
  /// are what matters. A batch that is still large is no place for their optimum.
  double batch = 1;
};

/// A window of 0 is plain decoding, which counts as coupled: the verifier alone decides.
struct RequestPlan {
  std::size_t request = 0;  ///< index
  SpeculationMode mode = SpeculationMode::coupled;
  int window = 0;
  double tokens_per_second = 0;  ///< as foreseen
};

/// Algorithm 2. acceptance: [requests] of each that is active, as it was measured. A plan for each
/// whose acceptance is below the mean, in order; the others keep what they have. Where this departs
/// from the paper: what loses against plain decoding either way is decoded plainly, for the paper's
/// two ways may both be slower; and a longer window must win half a percent, for what it wastes
/// takes time of others that the model of one request does not see.
[[nodiscard]] std::vector<RequestPlan> reconfigure(const ReconfigurationFacts& facts,
                                                   std::span<const double> acceptance);

}  // namespace paceline::policy
