// Distribution of attention over threads, planned once a pass: which rows attend together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/row_plan.hpp"

namespace paceline::kernels::cpu {

/// Rows of a chain.
struct AttentionPiece {
  int chain = 0;
  int first = 0;  ///< row of the chain
  int rows = 0;
};

/// Pieces that one thread takes together, for some kv heads: [first_piece, first_piece + pieces).
struct AttentionUnit {
  int first_piece = 0;
  int pieces = 0;
  int rows = 0;           ///< rows of all pieces
  int shared = 0;         ///< AttentionArgs::shared
  std::int64_t work = 0;  ///< positions that the rows see
};

/// Neighbouring kv heads of a unit, which a thread takes side by side through all positions, or
/// through some segments (kAttentionSegment).
struct AttentionTask {
  int unit = 0;  ///< index into units()
  int first_head = 0;
  int heads = 0;
  int first_segment = 0;
  int segments = 0;        ///< 0: all positions
  std::size_t states = 0;  ///< where its segments' states begin, in floats
};

class AttentionUnits {
 public:
  /// Cuts the rows of a pass for `threads` threads, each of which takes units of any kv head.
  /// Chains that begin with the same blocks come together. Units hold at most kRowHeads row heads
  /// (kFewerRowHeads of chains that share nothing, or where threads would have too few units), or
  /// one row; and where chains come together, no more of the work than leaves each thread several
  /// units. Units with the most work come first. Tasks have the kv heads of a unit side by side
  /// where this helps and leaves each thread several tasks; a unit that would keep one thread busy
  /// while others have nothing to do is cut into segments.
  void set(std::span<const Chain> chains, const KvShape& kv, int heads, int threads);
  [[nodiscard]] std::span<const AttentionUnit> units() const { return units_; }
  [[nodiscard]] std::span<const AttentionTask> tasks() const { return tasks_; }
  /// Units cut into segments, whose states are to be summed when all tasks are done: as tasks of
  /// all segments from the first on.
  [[nodiscard]] std::span<const AttentionTask> sums() const { return sums_; }
  [[nodiscard]] std::span<const AttentionPiece> pieces(const AttentionUnit& unit) const {
    return std::span(pieces_).subspan(unit.first_piece, unit.pieces);
  }
  [[nodiscard]] int most_rows() const { return most_rows_; }        ///< of a unit
  [[nodiscard]] int most_heads() const { return most_heads_; }      ///< of a task
  [[nodiscard]] int longest_path() const { return longest_path_; }  ///< of a chain, in positions
  [[nodiscard]] std::int64_t work() const { return work_; }         ///< of all units
  [[nodiscard]] std::size_t state_floats() const { return state_floats_; }  ///< of all segments

 private:
  void set_tasks(std::span<const Chain> chains, const KvShape& kv, int group, int threads);

  std::vector<int> order_;  ///< chains
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
