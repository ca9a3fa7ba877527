#include "runtime/speculation/joined_draft.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace paceline::speculation {

std::int32_t JoinedDraft::find(TokenId token, std::int32_t parent) const {
  for (std::size_t n = 0; n < tokens_.size(); ++n) {
    if (tokens_[n] == token && parents_[n] == parent) return static_cast<std::int32_t>(n);
  }
  return -1;
}

/// Index of a part that join() can copy unchanged; parts.size() if there is none. Such a part has
/// at most `most` tokens. It is the only part, or all other parts are empty and it is a chain whose
/// values do not rise, so that sorting would not change its order.
std::size_t JoinedDraft::only_part(std::span<const DraftPart> parts, std::size_t most) {
  std::size_t only = parts.size();
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (parts.size() > 1 && parts[p].tokens.empty()) continue;
    if (only < parts.size() || parts[p].tokens.size() > most) return parts.size();
    only = p;
  }
  if (parts.size() == 1 || only == parts.size()) return only;
  const DraftPart& part = parts[only];
  for (std::size_t t = 0; t < part.tokens.size(); ++t) {
    const bool goes_on = part.parents[t] == static_cast<std::int32_t>(t) - 1;
    if (!goes_on || (t > 0 && part.values[t] > part.values[t - 1])) return parts.size();
  }
  return only;
}

void JoinedDraft::join(std::span<const DraftPart> parts, std::size_t most) {
  nodes_.resize(parts.size());
  if (const std::size_t only = only_part(parts, most); only < parts.size()) {  // usual case
    const DraftPart& part = parts[only];
    tokens_.assign(part.tokens.begin(), part.tokens.end());
    parents_.assign(part.parents.begin(), part.parents.end());
    values_.assign(part.values.begin(), part.values.end());
    for (std::vector<std::int32_t>& nodes : nodes_) nodes.clear();
    nodes_[only].resize(tokens_.size());
    std::iota(nodes_[only].begin(), nodes_[only].end(), 0);
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
  // The sort keeps parents before their children, because a child's value is not higher.
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
