// Rows of a pass whose attention the ranks of a group divide among themselves
// (AttentionLayout::data): each computes its own rows with all heads, and then has what all came
// to.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"

namespace paceline::model {

/// Used by one thread. Rows do not depend on one another, and no sum is over ranks: bits are those
/// of one rank.
class RowExchange {
 public:
  /// `group` must outlive it.
  explicit RowExchange(TensorParallelGroup& group) : group_(group) {}

  /// Deals the next pass's rows: rank r has rows [first_row[r], first_row[r + 1]), maybe none.
  void deal(std::span<const int> first_row) {
    if (std::ssize(first_row) != group_.size() + 1)
      throw std::logic_error("rows that are not dealt to the ranks of the group");
    first_row_.assign(first_row.begin(), first_row.end());
  }
  [[nodiscard]] kernels::RowRange own() const {
    const int first = first_row_[group_.rank()];
    return {first, first_row_[group_.rank() + 1] - first};
  }
  /// Completes all rows. values: [rows of the pass, width], of which this rank has computed own().
  void complete(float* values, int width) {
    group_.gather_rows({values, static_cast<std::size_t>(first_row_.back()) * width}, first_row_);
  }

 private:
  TensorParallelGroup& group_;
  std::vector<int> first_row_;  ///< [ranks + 1]
};

}  // namespace paceline::model
