#include "runtime/speculation/joined_draft.hpp"

#include <algorithm>
#include <numeric>

namespace paceline::speculation {

std::int32_t JoinedDraft::find(TokenId token, std::int32_t parent) const {
  for (std::size_t n = 0; n < tokens_.size(); ++n) {
    if (tokens_[n] == token && parents_[n] == parent) return static_cast<std::int32_t>(n);
  }
  return -1;
}

void JoinedDraft::join(std::span<const DraftPart> parts, std::size_t most) {
  nodes_.resize(parts.size());
  if (parts.size() == 1 && parts[0].tokens.size() <= most) {  // by far the most frequent case
    tokens_.assign(parts[0].tokens.begin(), parts[0].tokens.end());
    parents_.assign(parts[0].parents.begin(), parts[0].parents.end());
    values_.assign(parts[0].values.begin(), parts[0].values.end());
    nodes_[0].resize(tokens_.size());
    std::iota(nodes_[0].begin(), nodes_[0].end(), 0);
    return;
  }
  tokens_.clear();
  parents_.clear();
  values_.clear();
  order_.clear();
  for (std::size_t p = 0; p < parts.size(); ++p) {
    nodes_[p].assign(parts[p].tokens.size(), -1);
    for (std::size_t t = 0; t < parts[p].tokens.size(); ++t)
      order_.push_back({parts[p].values[t], p, t});
  }
  // Parents stay before their children, whose values are no higher.
  std::ranges::stable_sort(order_, std::greater{}, &Candidate::value);
  for (const auto& [value, p, t] : order_) {
    const std::int32_t of_part = parts[p].parents[t];
    const std::int32_t parent = of_part < 0 ? -1 : nodes_[p][of_part];
    if (of_part >= 0 && parent < 0) continue;
    std::int32_t node = find(parts[p].tokens[t], parent);
    if (node < 0 && tokens_.size() < most) {
      node = static_cast<std::int32_t>(tokens_.size());
      tokens_.push_back(parts[p].tokens[t]);
      parents_.push_back(parent);
      values_.push_back(value);
    }
    nodes_[p][t] = node;
  }
}

void JoinedDraft::keep(std::span<const std::uint8_t> keep) {
  place_.assign(tokens_.size(), -1);
  std::int32_t count = 0;
  for (std::size_t n = 0; n < tokens_.size(); ++n) {
    if (keep[n] == 0) continue;
    place_[n] = count;
    tokens_[count] = tokens_[n];
    parents_[count] = parents_[n] < 0 ? -1 : place_[parents_[n]];
    values_[count] = values_[n];
    ++count;
  }
  tokens_.resize(count);
  parents_.resize(count);
  values_.resize(count);
  for (std::vector<std::int32_t>& nodes : nodes_) {
    for (std::int32_t& node : nodes) {
      if (node >= 0) node = place_[node];
    }
  }
}

}  // namespace paceline::speculation
