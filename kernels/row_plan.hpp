// Positions of a batch's rows and their places in the cache, planned once for each pass, for any
// backend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels {

/// A row's position, and the place of its k and v in the cache.
struct RowPlace {
  std::int32_t position = 0;
  std::int32_t block = 0;  ///< index into the pool
  std::int32_t slot = 0;   ///< position within the block
};

/// Rows of a segment at consecutive positions, each the child of the one before: a whole segment,
/// or a part of a tree.
struct Chain {
  int first_row = 0;  ///< index in the batch
  int rows = 0;
  int first_position = 0;
  int base = 0;                          ///< first position of its segment
  const std::int32_t* blocks = nullptr;  ///< block table of its segment
  /// Places of the rows' ancestors in the tree and of the rows themselves: position base + i lies
  /// in the cache in the place of position path[i]. Null: every position lies in its own place.
  const std::int32_t* path = nullptr;
  int seen = 0;  ///< Segment::seen
};

class RowPlan {
 public:
  /// Plans a batch. Throws Error (internal) as Backend::begin() does. Memory that `batch` points to
  /// must stay as long as the plan is used.
  void set(const Batch& batch);
  [[nodiscard]] std::span<const RowPlace> rows() const { return rows_; }   ///< [attended rows]
  [[nodiscard]] std::span<const Chain> chains() const { return chains_; }  ///< in row order

 private:
  void cut(const Segment& segment);

  std::vector<RowPlace> rows_;
  std::vector<Chain> chains_;
  std::vector<std::int32_t> paths_;         ///< paths of all chains that have one
  std::vector<std::ptrdiff_t> first_path_;  ///< [chains] index in paths_; -1: no path
  std::vector<std::int32_t> ancestors_;     ///< tree rows from the root to the current row
};

}  // namespace paceline::kernels
