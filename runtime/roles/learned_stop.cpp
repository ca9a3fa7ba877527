#include "runtime/roles/learned_stop.hpp"

#include <algorithm>
#include <utility>

namespace paceline::roles {
namespace {

/// Stands for tokens that a level lacks, because they end a response or there are no more.
constexpr float kNone = -20;

}  // namespace

LearnedStop::LearnedStop(std::shared_ptr<const policy::StopNetwork> network)
    : network_(std::move(network)) {}

void LearnedStop::judge(int level, std::span<draft::GrowingDraft> drafts) {
  if (level == 1) memories_.clear();
  for (draft::GrowingDraft& draft : drafts) {
    policy::StopNetwork::Confidences confidences;
    confidences.fill(kNone);
    const auto known = draft.frontier.first(std::min(draft.frontier.size(), confidences.size()));
    std::copy(known.begin(), known.end(), confidences.begin());
    const float stop = network_->stop_probability(memories_[draft.id], confidences);
    draft.grows =
        level <= policy::kMostExpansions &&
        !policy::stops(stop, draft.noise, static_cast<std::uint32_t>(draft.first), level - 1);
  }
}

}  // namespace paceline::roles
