// The pool of KV blocks. It counts the holders of each block: sequences, prompts and parcels
// (sequences.hpp). This is bookkeeping only; the bytes are the backend's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline::kv {

/// The plan of a contraction (Nightjar, section 5.3, steps 1 and 2): new places for the blocks past
/// the new end when the pool shrinks to `blocks` blocks. Entry i is the place, below `blocks`, to
/// which block `blocks` + i moves; -1: the block is free. `holders`: [pool] number of holders of
/// each block; at most `blocks` blocks may have holders. Every move goes from above the new end to
/// below it. So no block is both source and target, and the moves can be made in any order.
[[nodiscard]] std::vector<std::int32_t> plan_contraction(std::span<const std::int32_t> holders,
                                                         std::int32_t blocks);

/// KV blocks with reference counts. A block with more than one holder is shared and must not be
/// written. Not thread-safe.
class BlockPool {
 public:
  explicit BlockPool(std::int32_t blocks);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(holders_.size()); }
  [[nodiscard]] std::int32_t available() const { return static_cast<std::int32_t>(free_.size()); }
  [[nodiscard]] std::int32_t used() const { return size() - available(); }

  /// Returns a free block, with one holder from now on. Admission guarantees that some block is
  /// free.
  [[nodiscard]] std::int32_t acquire();
  /// Adds a holder to a block in use.
  void share(std::int32_t block);
  /// Removes a holder; the block is free when no holder is left.
  void release(std::int32_t block);
  [[nodiscard]] bool held(std::int32_t block) const { return holders_[block] > 0; }
  [[nodiscard]] std::int32_t holders(std::int32_t block) const { return holders_[block]; }

  /// Changes the number of blocks; at most `blocks` may be in use. Returns plan_contraction(), by
  /// which the caller must move blocks past the new end. acquire() takes the blocks that are free
  /// now from the lowest on, so that few blocks have to move when a grown pool shrinks again.
  [[nodiscard]] std::vector<std::int32_t> resize(std::int32_t blocks);

 private:
  std::vector<std::int32_t> holders_;  ///< [blocks] number of holders
  std::vector<std::int32_t> free_;     ///< a stack: the last freed block is likely in the CPU cache
};

/// Number of blocks of `block` positions that hold `positions` positions.
[[nodiscard]] constexpr std::int32_t blocks_for(std::int64_t positions, std::int32_t block) {
  return static_cast<std::int32_t>((positions + block - 1) / block);
}

}  // namespace paceline::kv
