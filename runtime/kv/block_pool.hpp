// A pool of KV blocks. It counts each block's holders: sequences, prompts, and parcels, which are
// KV to be sent or stored (sequences.hpp). The blocks' bytes are in the backend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline::kv {

/// Plans how a pool shrinks to `blocks` blocks (Nightjar, section 5.3, steps 1 and 2). Entry i of
/// the result is the place below `blocks` to which block `blocks` + i must move; -1: this block is
/// free. `holders`: [pool] number of holders of each block. At most `blocks` blocks may have
/// holders. Every move goes from past the new end to before it. So no block is both source and
/// target, and the moves can be made in any order.
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

  /// Returns a free block, after giving it one holder. Throws std::logic_error if no block is free.
  [[nodiscard]] std::int32_t acquire();
  /// Adds a holder to a block in use.
  void share(std::int32_t block);
  /// Removes a holder; the block is free when no holder is left.
  void release(std::int32_t block);
  [[nodiscard]] bool held(std::int32_t block) const { return holders_[block] > 0; }
  [[nodiscard]] std::int32_t holders(std::int32_t block) const { return holders_[block]; }

  /// Sets the number of blocks. At most `blocks` blocks may be in use. Returns plan_contraction()'s
  /// result, by which the caller must move the blocks' bytes. Blocks that are free after a resize
  /// are acquired in rising order, so that few blocks must move when a grown pool shrinks again.
  [[nodiscard]] std::vector<std::int32_t> resize(std::int32_t blocks);

 private:
  std::vector<std::int32_t> holders_;  ///< [blocks] number of holders
  std::vector<std::int32_t> free_;     ///< a stack: the block freed last is likely in the CPU cache
};

/// Number of blocks, of `block` positions each, that `positions` positions need.
[[nodiscard]] constexpr std::int32_t blocks_for(std::int64_t positions, std::int32_t block) {
  return static_cast<std::int32_t>((positions + block - 1) / block);
}

}  // namespace paceline::kv
