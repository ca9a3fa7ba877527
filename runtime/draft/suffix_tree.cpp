#include "runtime/draft/suffix_tree.hpp"

#include <algorithm>
#include <stdexcept>

namespace paceline::draft {

SuffixTree::SuffixTree(int depth) : depth_(depth) {
  static_assert(sizeof(Node) == 32);
  if (depth < 1 || depth > kMaxDepth) throw std::invalid_argument("suffix tree depth");
  allocate();  // the root
}

SuffixTree::Sequence SuffixTree::add_sequence() {
  if (sequences_.size() >= kMaxSequences) throw std::length_error("sequences in a suffix tree");
  Text text;
  text.active.resize(depth_);
  text_bytes_ += sizeof(Text) + text.active.size() * sizeof(NodeIndex);
  sequences_.push_back(std::move(text));
  return static_cast<Sequence>(sequences_.size() - 1);
}

void SuffixTree::shrink(Sequence sequence) {
  std::vector<TokenId>& tokens = sequences_[sequence].tokens;
  text_bytes_ -= tokens.capacity() * sizeof(TokenId);
  tokens.shrink_to_fit();
  text_bytes_ += tokens.capacity() * sizeof(TokenId);
}

std::size_t SuffixTree::bytes() const {
  return chunks_.size() * (kChunk * sizeof(Node) + sizeof(void*)) +
         free_.capacity() * sizeof(NodeIndex) + children_.bytes() + text_bytes_;
}

NodeIndex SuffixTree::allocate() {
  if (!free_.empty()) {
    const NodeIndex i = free_.back();
    free_.pop_back();
    node(i) = {};
    return i;
  }
  if (node_count_ == chunks_.size() * kChunk) chunks_.push_back(std::make_unique<Node[]>(kChunk));
  return static_cast<NodeIndex>(node_count_++);
}

void SuffixTree::append(Sequence sequence, std::span<const TokenId> tokens) {
  Text& text = sequences_[sequence];
  if (text.tokens.size() + tokens.size() > UINT32_MAX) throw std::length_error("sequence");
  const std::size_t before = text.tokens.capacity();
  for (const TokenId token : tokens) append(sequence, token);
  text_bytes_ += (text.tokens.capacity() - before) * sizeof(TokenId);
}

void SuffixTree::append(Sequence sequence, TokenId token) {
  Text& text = sequences_[sequence];
  text.tokens.push_back(token);  // all unique suffixes grow by this
  ++node(kRoot).count;
  // Another sequence may have repeated a unique suffix meanwhile. It has then repeated all shorter
  // ones too, so `unique` stays one number.
  while (text.unique > 0 && node(active(text, text.unique - 1)).count > 1) --text.unique;

  // Shortest first, so that a longer suffix finds the shorter one's new end on its way.
  const NodeIndex newest = advance(kRoot, 0, sequence, token);
  for (std::uint32_t i = text.active_count; i-- > text.unique;) {
    NodeIndex& at = active(text, i);
    at = advance(at, static_cast<int>(text.active_count - i), sequence, token);
  }
  active(text, text.active_count++) = newest;
  if (text.active_count == text.active.size()) {  // the longest has reached the depth bound
    if (text.unique > 0) {
      --text.unique;
    } else {
      --node(active(text, 0)).endings;
    }
    text.active_first = (text.active_first + 1) % text.active.size();
    --text.active_count;
  }
  while (text.unique < text.active_count && node(active(text, text.unique)).count == 1) {
    ++text.unique;
  }
}

/// Grows the suffix of `length` tokens that ends at `at` by a token. Returns its new end.
NodeIndex SuffixTree::advance(NodeIndex at, int length, Sequence sequence, TokenId token) {
  Node& from = node(at);
  const int position = children_.find(from.children, token);
  if (position < 0) {
    const NodeIndex leaf_index = allocate();
    Node& leaf = node(leaf_index);
    leaf.parent = at;
    leaf.start = static_cast<std::uint32_t>(sequences_[sequence].tokens.size() - 1);
    leaf.count = 1;
    leaf.sequence = sequence;
    leaf.length = static_cast<std::uint16_t>(depth_ - length);
    leaf.endings = 1;
    children_.push_back(from.children, {token, leaf_index});
    if (at != kRoot) --from.endings;
    return leaf_index;
  }

  const std::span<const Child> siblings = children_.view(from.children);
  const NodeIndex child_index = siblings[position].node;
  Node& child = node(child_index);
  const std::uint32_t child_length = edge_length(child);
  if (at != kRoot && siblings.size() == 1 && from.endings == 1) {
    // No suffix ends here any more, and only one token follows: the place needs no node.
    return child_length > 1 ? move_boundary(at, child_index) : absorb(at, child_index);
  }
  if (at != kRoot) --from.endings;
  if (child_length == 1) {
    child.length = 1;  // a leaf that grew does not grow any more
    ++child.endings;
    count_up(from, position);
    return child_index;
  }
  const NodeIndex middle_index = allocate();
  Node& middle = node(middle_index);
  middle.parent = at;
  middle.start = child.start;
  middle.count = child.count;
  middle.sequence = child.sequence;
  middle.length = 1;
  middle.endings = 1;
  children_.push_back(middle.children, {text(child, 1), child_index});
  children_.set_node(from.children, position, middle_index);
  child.parent = middle_index;
  ++child.start;
  --child.length;
  count_up(from, position);
  return middle_index;
}

/// Moves the end at `at`, and its node, one token down the edge to its only child.
NodeIndex SuffixTree::move_boundary(NodeIndex at, NodeIndex child_index) {
  Node& from = node(at);
  Node& child = node(child_index);
  // The text before an edge in its sequence is the path to the edge.
  from.start = child.start - from.length;
  from.sequence = child.sequence;
  ++from.length;
  ++child.start;
  --child.length;
  from.children = {};
  children_.push_back(from.children, {text(child, 0), child_index});
  return at;
}

/// Moves the end at `at` to its only child, one token below. The child takes over the whole edge.
NodeIndex SuffixTree::absorb(NodeIndex at, NodeIndex child_index) {
  const Node& from = node(at);
  Node& child = node(child_index);
  Node& parent = node(from.parent);
  const int position = children_.find(parent.children, text(from, 0));
  ++child.count;
  ++child.endings;
  child.start -= from.length;
  child.length = static_cast<std::uint16_t>(from.length + 1);
  child.parent = from.parent;
  children_.set_node(parent.children, position, child_index);
  free_.push_back(at);
  return child_index;
}

/// Adds one to a child's count and keeps the children in descending order of count.
void SuffixTree::count_up(Node& parent, int position) {
  const std::span<const Child> all = children_.view(parent.children);
  const std::uint32_t old = node(all[position].node).count++;
  int first = position;  // position of the first child with the old count
  if (position <= 16) {
    while (first > 0 && node(all[first - 1].node).count == old) --first;
  } else {
    first = static_cast<int>(
        std::partition_point(all.begin(), all.begin() + position,
                             [&](const Child& c) { return node(c.node).count > old; }) -
        all.begin());
  }
  children_.swap(parent.children, first, position);
}

std::optional<SuffixTree::Cursor> SuffixTree::find(std::span<const TokenId> text_sought) const {
  if (text_sought.size() > static_cast<std::size_t>(depth_)) return std::nullopt;
  Cursor at;
  for (std::size_t i = 0; i < text_sought.size();) {
    const Node& n = node(at.node);
    const std::uint32_t length = edge_length(n);
    if (at.offset == length) {
      const int position = children_.find(n.children, text_sought[i]);
      if (position < 0) return std::nullopt;
      at = {children_.view(n.children)[position].node, 1};
      ++i;
      continue;
    }
    const TokenId* edge = &sequences_[n.sequence].tokens[n.start];
    for (; at.offset < length && i < text_sought.size(); ++at.offset, ++i) {
      if (edge[at.offset] != text_sought[i]) return std::nullopt;
    }
  }
  return at;
}

SuffixTree::Cursor SuffixTree::suffix(Sequence sequence, int length) const {
  const Text& text = sequences_[sequence];
  const std::uint32_t i =
      text.active_first + text.active_count - static_cast<std::uint32_t>(length);
  const NodeIndex at = text.active[i % text.active.size()];
  return {at, edge_length(node(at))};
}

std::uint32_t SuffixTree::continued(Cursor at) const {
  const Node& n = node(at.node);
  if (at.offset < edge_length(n)) return n.count;
  if (at.node != kRoot) return children_.view(n.children).empty() ? 0 : n.count - n.endings;
  return n.count;
}

std::uint32_t SuffixTree::best_next(Cursor at) const {
  const Node& n = node(at.node);
  if (at.offset < edge_length(n)) return n.count;
  const std::span<const Child> next = children_.view(n.children);
  return next.empty() ? 0 : node(next.front().node).count;
}

}  // namespace paceline::draft
