// Distribution of attention over threads, planned once for each pass: the rows that attend
// together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/row_plan.hpp"

namespace paceline::kernels::cpu {

/// Neighbouring rows of a chain.
struct AttentionPiece {
  int chain = 0;
  int first = 0;  ///< index of the first row in the chain
  int rows = 0;
};

/// Pieces that attend together, for some kv heads: [first_piece, first_piece + pieces).
struct AttentionUnit {
  int first_piece = 0;
  int pieces = 0;
  int rows = 0;           ///< rows of all pieces
  int shared = 0;         ///< AttentionArgs::shared
  std::int64_t work = 0;  ///< sum of the positions that the rows see
};

/// Neighbouring kv heads of a unit. A thread takes them side by side through all positions, or
/// through some segments (kAttentionSegment).
struct AttentionTask {
  int unit = 0;  ///< index into units()
  int first_head = 0;
  int heads = 0;
  int first_segment = 0;
  int segments = 0;        ///< 0: all positions
  std::size_t states = 0;  ///< offset of its segments' states, in floats
};

class AttentionUnits {
 public:
  /// Cuts the rows of a pass into units and tasks for `threads` threads. Chains that begin with the
  /// same blocks come together in a unit, as long as each thread keeps several units. A unit has at
  /// most kRowHeads row heads, or one row. Its limit is kFewerRowHeads for chains that share
  /// nothing, or where threads would have too few units. Units with the most work come first. A
  /// task has several kv heads of a unit side by side where this helps and leaves each thread
  /// several tasks. A unit that would keep one thread busy while others wait is cut into segments.
  /// `heads`: query heads of this rank.
  void set(std::span<const Chain> chains, const KvShape& kv, int heads, int threads);
  [[nodiscard]] std::span<const AttentionUnit> units() const { return units_; }
  [[nodiscard]] std::span<const AttentionTask> tasks() const { return tasks_; }
  /// One task for each kv head of a unit that is cut into segments. It has all the segments, whose
  /// states are to be summed when all tasks are done.
  [[nodiscard]] std::span<const AttentionTask> sums() const { return sums_; }
  [[nodiscard]] std::span<const AttentionPiece> pieces(const AttentionUnit& unit) const {
    return std::span(pieces_).subspan(unit.first_piece, unit.pieces);
  }
  [[nodiscard]] int most_rows() const { return most_rows_; }        ///< most rows of a unit
  [[nodiscard]] int most_heads() const { return most_heads_; }      ///< most kv heads of a task
  [[nodiscard]] int longest_path() const { return longest_path_; }  ///< in positions
  [[nodiscard]] std::int64_t work() const { return work_; }         ///< sum over all units
  [[nodiscard]] std::size_t state_floats() const { return state_floats_; }  ///< over all segments

 private:
  void set_tasks(std::span<const Chain> chains, const KvShape& kv, int group, int threads);

  std::vector<int> order_;  ///< indices of chains, in the order of their first block
  std::vector<AttentionPiece> pieces_;
  std::vector<AttentionUnit> units_;
  std::vector<AttentionTask> tasks_;
  std::vector<AttentionTask> sums_;
  std::size_t state_floats_ = 0;
  int most_rows_ = 0;
  int most_heads_ = 0;
  int longest_path_ = 0;
  std::int64_t work_ = 0;
};

}  // namespace paceline::kernels::cpu
