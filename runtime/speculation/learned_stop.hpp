// RADAR's prediction model as judge of drafts in the making (policy/length/draft_stop.hpp).
#pragma once

#include <map>
#include <memory>
#include <span>

#include "runtime/draft/drafter.hpp"
#include "runtime/policy/length/draft_stop.hpp"

namespace paceline::speculation {

/// A stop network's view of a level with this frontier (draft::GrowingDraft::frontier).
[[nodiscard]] policy::StopNetwork::Confidences confidences(std::span<const float> frontier);

/// A stop network judges each draft by itself and by its request's own noise, so that drafts do not
/// depend on the batch; the paper has batches of one. A draft that ends at its first level consists
/// of that level: the published program makes a flat tree of 59 tokens then, but a backend ranks no
/// more of a level than are asked for. Not thread-safe.
class LearnedStop final : public draft::Levels {
 public:
  explicit LearnedStop(std::shared_ptr<const policy::StopNetwork> network);
  /// No draft has more than kMostExpansions + 1 levels.
  void judge(int level, std::span<draft::GrowingDraft> drafts) override;

 private:
  std::shared_ptr<const policy::StopNetwork> network_;
  std::map<RequestId, policy::StopNetwork::Memory> memories_;  ///< of the drafts under way
};

}  // namespace paceline::speculation
