// Which KV blocks are in use, and by how many holders. Bookkeeping only: the bytes are the
// backend's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline::kv {

/// A fixed number of KV blocks with reference counts. A block held more than once is shared and
/// must not be written. Not thread-safe.
class BlockPool {
 public:
  explicit BlockPool(std::int32_t blocks);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(holders_.size()); }
  [[nodiscard]] std::int32_t available() const { return static_cast<std::int32_t>(free_.size()); }
  [[nodiscard]] std::int32_t used() const { return size() - available(); }

  /// A block with one holder. The pool must not be empty: admission guarantees it.
  [[nodiscard]] std::int32_t acquire();
  /// One more holder of a block in use.
  void share(std::int32_t block);
  /// One holder fewer; the block is free when none is left.
  void release(std::int32_t block);
  [[nodiscard]] bool held(std::int32_t block) const { return holders_[block] > 0; }

  /// Changes the number of blocks; no more than that may be in use. Blocks in use past the new end
  /// get free places before it: entry i of the result is where block `blocks` + i went, -1 where it
  /// was free.
  [[nodiscard]] std::vector<std::int32_t> resize(std::int32_t blocks);

 private:
  std::vector<std::int32_t> holders_;  ///< [blocks]
  std::vector<std::int32_t> free_;     ///< a stack: the block freed last is warm in cache
};

/// Blocks of `block` positions that hold `positions` positions.
[[nodiscard]] constexpr std::int32_t blocks_for(std::int64_t positions, std::int32_t block) {
  return static_cast<std::int32_t>((positions + block - 1) / block);
}

}  // namespace paceline::kv
