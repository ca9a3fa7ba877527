// Storage for the children of suffix-tree nodes: token -> node, in an order the tree chooses.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline::draft {

using NodeIndex = std::uint32_t;

struct Child {
  TokenId token = 0;
  NodeIndex node = 0;
};

/// The children of one node, 12 bytes in the node itself. Only the ChildPool that owns them reads
/// them. Children are never removed, so a single child is always held inline.
struct Children {
  Child inline_child;      ///< the only child; or .node names the block or wide map of children
  std::uint8_t shape = 0;  ///< 0: none or one, inline; 1..4: a block of 2, 4, 8, 16; 5: wide
  std::uint8_t size = 0;   ///< not used by wide maps
};

/// Most nodes have few children and are searched linearly; nodes with more than 16 get a map with
/// open addressing. Reading from several threads is safe while nobody writes.
class ChildPool {
 public:
  [[nodiscard]] std::span<const Child> view(const Children& children) const;
  /// Position of the child for the token, or -1.
  [[nodiscard]] int find(const Children& children, TokenId token) const;
  /// Adds a child after the others; its token must be new.
  void push_back(Children& children, Child child);
  /// Makes the child at the position lead to another node. Its token stays.
  void set_node(Children& children, int position, NodeIndex node);
  /// Exchanges the places of two children.
  void swap(Children& children, int a, int b);
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  /// A map from tokens to positions in `children`, by linear probing. Slot: 0 is empty, else
  /// position + 1.
  struct Wide {
    std::vector<Child> children;
    std::vector<std::uint32_t> slots;  ///< a power of two, at most half full
  };

  static constexpr int kShapes = 5;  ///< the shape of wide maps
  static constexpr std::size_t kChunk = 1024;
  static constexpr int capacity(int shape) { return 1 << shape; }

  [[nodiscard]] const Child* data(const Children& children) const;
  [[nodiscard]] Child* data(Children& children) {
    return const_cast<Child*>(std::as_const(*this).data(children));
  }
  [[nodiscard]] static std::uint32_t* slot(Wide& wide, TokenId token);
  [[nodiscard]] static const std::uint32_t* slot(const Wide& wide, TokenId token);
  std::uint32_t allocate(int shape);
  void widen(Children& children);
  void push_wide(Wide& wide, Child child);

  std::vector<std::unique_ptr<Child[]>> chunks_;  ///< [kChunk] each
  std::size_t used_ = kChunk;                     ///< children in use of the last chunk
  std::array<std::vector<std::uint32_t>, kShapes> free_;
  std::vector<std::unique_ptr<Wide>> wides_;
  std::size_t bytes_ = 0;
};

}  // namespace paceline::draft
