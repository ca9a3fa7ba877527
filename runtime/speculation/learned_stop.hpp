// Decides by RADAR's prediction model when a draft stops growing (policy/length/draft_stop.hpp).
#pragma once

#include <map>
#include <memory>
#include <span>

#include "runtime/draft/drafter.hpp"
#include "runtime/policy/length/draft_stop.hpp"

namespace paceline::speculation {

/// Returns the stop network's input for a level of a draft (`frontier`: GrowingDraft::frontier).
[[nodiscard]] policy::StopNetwork::Confidences confidences(std::span<const float> frontier);

/// Decides at random whether a draft stops: a stop network gives the probability, and the noise of
/// the draft's request gives the random number. A draft that stops at its first level has at most
/// DraftLimits::paths tokens. RADAR's published program drafts the 59 likeliest tokens in this
/// case, but paceline's backends rank at most kernels::kMaxRanked tokens. Not thread-safe.
class LearnedStop final : public draft::Levels {
 public:
  explicit LearnedStop(std::shared_ptr<const policy::StopNetwork> network);
  /// Lets no draft have more than kMostExpansions + 1 levels.
  void judge(int level, std::span<draft::GrowingDraft> drafts) override;

 private:
  std::shared_ptr<const policy::StopNetwork> network_;
  std::map<RequestId, policy::StopNetwork::Memory> memories_;  ///< LSTM state of each growing draft
};

}  // namespace paceline::speculation
