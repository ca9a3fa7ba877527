#include "runtime/engine/draft_tree.hpp"

namespace paceline::engine {

void TreeRows::add(std::int32_t token, std::int32_t parent_row) {
  chain_ = chain_ && parent_row == size() - 1;
  draft_.push_back(token);
  parent_.push_back(parent_row);
  depth_.push_back(parent_row < 0 ? 0 : depth_[parent_row] + 1);
}

void TreeRows::lay_out(const DraftTree& draft) {
  const auto tokens = static_cast<std::int32_t>(draft.tokens.size());
  chain_ = true;
  draft_.clear();
  parent_.clear();
  depth_.clear();
  // Children as linked lists; entry i + 1 is token i. Built backwards, so that lists are in order.
  first_child_.assign(tokens + 1, -1);
  sibling_.assign(tokens + 1, -1);
  for (std::int32_t i = tokens; i-- > 0;) {
    std::int32_t& first = first_child_[draft.parents[i] + 1];
    sibling_[i + 1] = first;
    first = i;
  }
  stack_.assign(1, {-1, -1});
  while (!stack_.empty()) {
    const auto [token, parent_row] = stack_.back();
    stack_.pop_back();
    add(token, parent_row);
    // A token's next sibling is pushed before its children, so that it is taken after them.
    if (token >= 0 && sibling_[token + 1] >= 0) stack_.push_back({sibling_[token + 1], parent_row});
    if (first_child_[token + 1] >= 0) stack_.push_back({first_child_[token + 1], size() - 1});
  }
}

}  // namespace paceline::engine
