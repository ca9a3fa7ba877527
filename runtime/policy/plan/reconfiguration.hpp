// Drafting modes and windows of slow requests, chosen while a run goes on (SpecActor, section 4.1,
// Algorithm 2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/speculation_mode.hpp"
#include "runtime/policy/plan/speculation_speed.hpp"

namespace paceline::policy {

/// Tokens of a request from one reconfiguration to the next, as in the paper.
inline constexpr std::uint32_t kReconfigureEvery = 1000;

/// Whether a response that grew from `before` to `after` tokens is due for a reconfiguration.
/// `every`: at least 1.
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
  std::vector<DraftingWay> ways;  ///< ways between which a request can be moved
  /// Requests of a step. The paper has 1, for tail requests matter; but a batch that is still large
  /// is no place for their optimum.
  double batch = 1;
  double drafted_for = 1;  ///< requests of a drafter rank, other groups' included
};

struct RequestPlan {
  std::size_t request = 0;  ///< index
  SpeculationMode mode = SpeculationMode::plain;
  int window = 0;                ///< tokens; 0: plain
  double tokens_per_second = 0;  ///< as foreseen
};

/// Algorithm 2. acceptance: [requests, ways] measured, of each active request, which counts with
/// its best way. due: [any] indices of requests that are due. Returns a plan for each due request
/// whose acceptance is below the mean of all, in their order. Departures from the paper:
/// - There both ways draft with one model. Here each has an acceptance of its own, for the verifier
///   may draft with n-grams, and drafter ranks with a model.
/// - A request that every way would slow down is decoded plainly.
/// - A longer window must win half a percent, for its waste takes time of others, which the model
///   of one request does not see.
[[nodiscard]] std::vector<RequestPlan> reconfigure(const ReconfigurationFacts& facts,
                                                   std::span<const double> acceptance,
                                                   std::span<const std::size_t> due);

}  // namespace paceline::policy
