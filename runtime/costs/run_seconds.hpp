// How long a run will take, by the cost table.
#pragma once

#include <cstdint>

#include "runtime/costs/cost_table.hpp"

namespace paceline {

struct RunShape {
  double responses = 0;
  int samples = 1;           ///< responses to each prompt, which is computed once for them
  double prompt_tokens = 0;  ///< of a prompt, on average
  double response_tokens = 0;
  int groups = 1;
  int max_batch = 1;
  std::int64_t kv_positions = 0;  ///< positions that a group has room for
};

/// Seconds of plain decoding when all groups begin at once, responses are equally long and batches
/// stay full to the end: a run with a long tail takes longer, one whose drafts pay less.
[[nodiscard]] double run_seconds(const CostTable& costs, const RunShape& run);

}  // namespace paceline
