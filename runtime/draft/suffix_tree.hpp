// A compressed suffix tree of bounded depth over several growing sequences, with counts
// (Seer, section 4.4; SuffixDecoding).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/types.hpp"
#include "runtime/draft/child_pool.hpp"

namespace paceline::draft {

/// Holds every substring of at most `depth` tokens of its sequences, each with its number of
/// occurrences. Substrings never span two sequences. Edges are stretches of sequence text, not
/// copies of it, so memory is linear in the tokens.
///
/// A node stands wherever counts change, so all of an edge has its lower node's count. Each of a
/// sequence's last depth - 1 suffixes may grow by the next token: its place in the tree is kept,
/// and append() moves it on. Suffixes that occur once grow by themselves, because a leaf's edge
/// reaches to the end of its sequence. append() touches only the repeated ones, at most depth - 1.
///
/// Counts, and so all drafts, depend on the sequences' tokens alone and not on the order in which
/// sequences grew. Const members may run in several threads while nobody writes.
class SuffixTree {
 public:
  using Sequence = std::uint32_t;
  static constexpr int kMaxDepth = 4096;
  static constexpr std::size_t kMaxSequences = 65534;
  static constexpr std::size_t kTokenBytes = 64;  ///< about the bytes of a token (group_log.hpp)

  /// About the most bytes of `trees` trees with `tokens` tokens in all.
  [[nodiscard]] static constexpr std::uint64_t most_bytes(std::uint64_t trees,
                                                          std::uint64_t tokens) {
    return trees * kChunk * sizeof(Node) + tokens * kTokenBytes;
  }

  /// A place in the tree: `offset` tokens down the edge to `node`. {root, 0} is the empty string.
  struct Cursor {
    NodeIndex node = 0;
    std::uint32_t offset = 0;
  };

  /// depth: longest substring counted, tokens, 1 to kMaxDepth. Throws std::invalid_argument on a
  /// bad depth.
  explicit SuffixTree(int depth = 64);

  /// Adds an empty sequence. Throws std::length_error past kMaxSequences.
  Sequence add_sequence();
  /// Appends tokens, at a cost of at most O(depth) per token. Throws std::length_error past 2^32 -
  /// 1 tokens in the sequence.
  void append(Sequence sequence, std::span<const TokenId> tokens);
  /// Gives back memory kept for the sequence to grow into. The sequence may grow all the same.
  void shrink(Sequence sequence);

  [[nodiscard]] int depth() const { return depth_; }
  [[nodiscard]] std::size_t sequences() const { return sequences_.size(); }
  [[nodiscard]] std::span<const TokenId> tokens(Sequence sequence) const {
    return sequences_[sequence].tokens;
  }
  /// Memory held, bytes.
  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] std::size_t nodes() const { return node_count_ - free_.size(); }

  /// The place of the text; nothing when it does not occur (or is longer than depth).
  [[nodiscard]] std::optional<Cursor> find(std::span<const TokenId> text) const;
  /// The place of the last `length` tokens of a sequence, 1 <= length <= active(sequence).
  [[nodiscard]] Cursor suffix(Sequence sequence, int length) const;
  /// Number of suffixes of a sequence whose place is known: min(depth - 1, its tokens).
  [[nodiscard]] int active(Sequence sequence) const {
    return static_cast<int>(sequences_[sequence].active_count);
  }

  /// Occurrences of the string at the cursor; for the root, tokens in all sequences.
  [[nodiscard]] std::uint32_t count(Cursor at) const { return node(at.node).count; }
  /// Occurrences with a token after them (within depth).
  [[nodiscard]] std::uint32_t continued(Cursor at) const;
  /// The count of the string with its most frequent next token; 0 when nothing follows.
  [[nodiscard]] std::uint32_t best_next(Cursor at) const;
  /// Whether the cursor is inside an edge, where only one token can follow.
  [[nodiscard]] bool inside_edge(Cursor at) const { return at.offset < edge_length(node(at.node)); }
  /// The next token inside an edge.
  [[nodiscard]] TokenId edge_token(Cursor at) const {
    const Node& n = node(at.node);
    return sequences_[n.sequence].tokens[n.start + at.offset];
  }
  /// At the end of an edge: the next tokens, most frequent first (equal ones in any order).
  [[nodiscard]] std::span<const Child> children(Cursor at) const {
    return children_.view(node(at.node).children);
  }

 private:
  static constexpr NodeIndex kRoot = 0;
  static constexpr std::size_t kChunk = 1024;

  /// A node of 32 bytes. count == 1: a leaf whose edge reaches to the end of its sequence or to
  /// `length`, whichever is first, and grows with the sequence.
  struct Node {
    NodeIndex parent = kRoot;
    std::uint32_t start = 0;  ///< the edge's text is [start, start + length) of the sequence
    std::uint32_t count = 0;
    Sequence sequence = 0;
    std::uint16_t length = 0;
    std::uint16_t endings = 0;  ///< suffixes of sequences, shorter than depth, that end here
    Children children;
  };

  struct Text {
    std::vector<TokenId> tokens;
    /// [depth] ring of the nodes where the last suffixes end, from active_first on, longest first.
    std::vector<NodeIndex> active;
    std::uint32_t active_first = 0;
    std::uint32_t active_count = 0;
    std::uint32_t unique = 0;  ///< number of active suffixes that occur once: the longest ones
  };

  [[nodiscard]] Node& node(NodeIndex i) { return chunks_[i / kChunk][i % kChunk]; }
  [[nodiscard]] const Node& node(NodeIndex i) const { return chunks_[i / kChunk][i % kChunk]; }
  [[nodiscard]] std::uint32_t edge_length(const Node& n) const {
    if (n.count != 1) return n.length;
    const std::size_t rest = sequences_[n.sequence].tokens.size() - n.start;
    return rest < n.length ? static_cast<std::uint32_t>(rest) : n.length;
  }
  [[nodiscard]] TokenId text(const Node& n, std::uint32_t offset) const {
    return sequences_[n.sequence].tokens[n.start + offset];
  }
  [[nodiscard]] NodeIndex& active(Text& text, std::uint32_t i) {
    const std::uint32_t at = text.active_first + i;
    return text.active[at < text.active.size() ? at : at - text.active.size()];
  }

  NodeIndex allocate();
  void append(Sequence sequence, TokenId token);
  NodeIndex advance(NodeIndex at, int length, Sequence sequence, TokenId token);
  NodeIndex move_boundary(NodeIndex at, NodeIndex child);
  NodeIndex absorb(NodeIndex at, NodeIndex child);
  void count_up(Node& parent, int position);

  int depth_;
  std::vector<std::unique_ptr<Node[]>> chunks_;  ///< [kChunk] each; nodes never move
  std::size_t node_count_ = 0;                   ///< nodes ever allocated
  std::vector<NodeIndex> free_;
  ChildPool children_;
  std::vector<Text> sequences_;
  std::size_t text_bytes_ = 0;
};

}  // namespace paceline::draft
