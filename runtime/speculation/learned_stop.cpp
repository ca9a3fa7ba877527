#include "runtime/speculation/learned_stop.hpp"

#include <algorithm>
#include <utility>

namespace paceline::speculation {
namespace {

/// Log-probability with which a level of too few tokens is filled up to the network's input size.
constexpr float kNone = -20;

}  // namespace

policy::StopNetwork::Confidences confidences(std::span<const float> frontier) {
  policy::StopNetwork::Confidences level;
  level.fill(kNone);
  const auto known = frontier.first(std::min(frontier.size(), level.size()));
  std::copy(known.begin(), known.end(), level.begin());
  return level;
}

LearnedStop::LearnedStop(std::shared_ptr<const policy::StopNetwork> network)
    : network_(std::move(network)) {}

void LearnedStop::judge(int level, std::span<draft::GrowingDraft> drafts) {
  if (level == 1) memories_.clear();
  for (draft::GrowingDraft& draft : drafts) {
    const float stop = network_->stop_probability(memories_[draft.id], confidences(draft.frontier));
    draft.grows =
        level <= policy::kMostExpansions &&
        !policy::stops(stop, draft.noise, static_cast<std::uint32_t>(draft.first), level - 1);
  }
}

}  // namespace paceline::speculation
