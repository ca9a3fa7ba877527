// Positions of a batch's rows and their places in the cache, planned once a pass for any backend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels {

/// One row's position, and the place of its k and v in the cache.
struct RowPlace {
  std::int32_t position = 0;
  std::int32_t block = 0;  ///< index into the pool
  std::int32_t slot = 0;   ///< position within the block
};

/// Rows of a segment at consecutive positions, each following the one before: a whole segment, or a
/// stretch of a tree.
struct Chain {
  int first_row = 0;  ///< in the batch
  int rows = 0;
  int first_position = 0;
  int base = 0;                          ///< first position of its segment
  const std::int32_t* blocks = nullptr;  ///< block table of its segment
  /// Places of ancestors: position base + i, of the rows' ancestors and the rows themselves, lies
  /// in the cache where path[i] would. Null: every position lies at its own place.
  const std::int32_t* path = nullptr;
};

class RowPlan {
 public:
  /// Plans a batch. Throws Error (internal) as Backend::begin() does. Memory that `batch` points to
  /// must outlive the plan's use.
  void set(const Batch& batch);
  [[nodiscard]] std::span<const RowPlace> rows() const { return rows_; }   ///< [attended rows]
  [[nodiscard]] std::span<const Chain> chains() const { return chains_; }  ///< in row order

 private:
  void cut(const Segment& segment);

  std::vector<RowPlace> rows_;
  std::vector<Chain> chains_;
  std::vector<std::int32_t> paths_;         ///< of all chains with one
  std::vector<std::ptrdiff_t> first_path_;  ///< [chains] in paths_; -1: none
  std::vector<std::int32_t> ancestors_;     ///< of the current row, from the root
};

}  // namespace paceline::kernels
