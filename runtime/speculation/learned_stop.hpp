// RADAR's prediction model as judge of drafts that grow (policy/length/draft_stop.hpp).
#pragma once

#include <map>
#include <memory>
#include <span>

#include "runtime/draft/drafter.hpp"
#include "runtime/policy/length/draft_stop.hpp"

namespace paceline::speculation {

/// Returns a stop network's input for a level with this frontier (draft::GrowingDraft::frontier).
[[nodiscard]] policy::StopNetwork::Confidences confidences(std::span<const float> frontier);

/// Judges each draft by a stop network and by the noise of the draft's request, without regard to
/// other drafts. A draft that ends at its first level has only this level's tokens. The published
/// program makes a flat tree of 59 tokens then, but here a backend ranks only the tokens of a level
/// that are asked for. Not thread-safe.
class LearnedStop final : public draft::Levels {
 public:
  explicit LearnedStop(std::shared_ptr<const policy::StopNetwork> network);
  /// No draft has more than kMostExpansions + 1 levels.
  void judge(int level, std::span<draft::GrowingDraft> drafts) override;

 private:
  std::shared_ptr<const policy::StopNetwork> network_;
  std::map<RequestId, policy::StopNetwork::Memory> memories_;  ///< for the drafts under way
};

}  // namespace paceline::speculation
