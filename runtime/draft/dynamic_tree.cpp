#include "runtime/draft/dynamic_tree.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace paceline::draft {

void DynamicTree::add(std::int32_t parent, std::span<const Child> children) {
  const double before = parent < 0 ? 0 : nodes_[parent].score;
  const int depth = parent < 0 ? 1 : nodes_[parent].depth + 1;
  for (const Child& child : children)
    nodes_.push_back({child.token, parent, depth, before + std::min(0.0, child.log_probability)});
}

std::span<const std::int32_t> DynamicTree::expand(int width, std::span<const TokenId> stops) {
  frontier_.clear();
  for (std::size_t i = expanded_; i < nodes_.size(); ++i) {
    if (std::ranges::find(stops, nodes_[i].token) == stops.end())
      frontier_.push_back(static_cast<std::int32_t>(i));
  }
  expanded_ = nodes_.size();
  std::ranges::stable_sort(frontier_, [this](std::int32_t a, std::int32_t b) {
    return nodes_[a].score > nodes_[b].score;
  });
  frontier_.resize(std::min(frontier_.size(), static_cast<std::size_t>(width)));
  return frontier_;
}

// A parent is no less likely than its children and was added before them, so no child is chosen
// without its parent.
int DynamicTree::write(int most, const DraftOutput& output) const {
  std::vector<std::int32_t> chosen(nodes_.size());
  std::iota(chosen.begin(), chosen.end(), 0);
  std::ranges::stable_sort(
      chosen, [this](std::int32_t a, std::int32_t b) { return nodes_[a].score > nodes_[b].score; });
  chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(std::max(0, most))));
  std::ranges::sort(chosen);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Node& node = nodes_[chosen[i]];
    const auto parent = std::ranges::lower_bound(chosen, node.parent);
    output.set(static_cast<int>(i), node.token,
               node.parent < 0 ? -1 : static_cast<std::int32_t>(parent - chosen.begin()),
               static_cast<float>(std::exp(node.score)));
  }
  return static_cast<int>(chosen.size());
}

}  // namespace paceline::draft
