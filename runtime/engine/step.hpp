// One engine step over a ragged batch, as plain data: what the leader of a verifier group plans and
// every rank of the group executes.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/types.hpp"

namespace paceline::engine {

/// Rows of one sequence: a chain at consecutive positions, or a tree of drafted tokens under its
/// first row (kernels::Segment).
struct StepPart {
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t first_position = 0;  ///< absolute position of the first row
  std::int32_t first_block = 0;     ///< where its block table begins in Step::block_table
  std::int32_t first_parent = -1;   ///< where a tree's parents begin in Step::parents; -1: a chain
};

/// A row whose next token is wanted.
struct StepSample {
  NoiseKey noise;
  std::int32_t row = 0;
  std::int32_t index = 0;      ///< of the token within its response
  std::int32_t ban_stops = 0;  ///< 1: stop ids cannot be sampled yet (min_tokens)
};

struct Step {
  std::vector<TokenId> tokens;            ///< [rows]
  std::vector<StepPart> parts;            ///< in row order, covering all rows
  std::vector<std::int32_t> block_table;  ///< the parts' block tables, one after the other
  std::vector<std::int32_t> parents;      ///< of the trees' rows: row of the part, -1 for its first
  std::vector<kernels::Backend::SlotMove> moves;    ///< done first
  std::vector<kernels::Backend::BlockCopy> copies;  ///< done before the forward pass
  std::vector<StepSample> samples;                  ///< in row order

  [[nodiscard]] bool empty() const { return tokens.empty(); }
  void clear() {
    tokens.clear();
    parts.clear();
    block_table.clear();
    parents.clear();
    moves.clear();
    copies.clear();
    samples.clear();
  }
};

}  // namespace paceline::engine
