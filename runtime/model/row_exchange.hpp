// Exchange of rows where the ranks of a group divide a pass's attention by rows
// (AttentionLayout::data): each rank computes its own rows with all heads, and then gets the
// results of all rows.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"

namespace paceline::model {

/// Deals rows to ranks and gathers their results. Used by one thread. Rows do not depend on one
/// another, and no sum goes over ranks, so the bits equal those of one rank.
class RowExchange {
 public:
  /// `group` must outlive this object.
  explicit RowExchange(TensorParallelGroup& group) : group_(group) {}

  /// Deals the next pass's rows: rank r has rows [first_row[r], first_row[r + 1]), perhaps none.
  void deal(std::span<const int> first_row) {
    if (std::ssize(first_row) != group_.size() + 1)
      throw std::logic_error("rows that are not dealt to the ranks of the group");
    first_row_.assign(first_row.begin(), first_row.end());
  }
  [[nodiscard]] kernels::RowRange own() const {
    const int first = first_row_[group_.rank()];
    return {first, first_row_[group_.rank() + 1] - first};
  }
  /// Gathers all rows. `values`: [rows of the pass, width], of which this rank has computed own().
  /// Collective.
  void complete(float* values, int width) {
    group_.gather_rows({values, static_cast<std::size_t>(first_row_.back()) * width}, first_row_);
  }

 private:
  TensorParallelGroup& group_;
  std::vector<int> first_row_;  ///< [ranks + 1]
};

}  // namespace paceline::model
