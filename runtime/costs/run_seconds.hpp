// Prediction of a run's duration from the cost table.
#pragma once

#include <cstdint>

#include "runtime/costs/cost_table.hpp"

namespace paceline {

struct RunShape {
  double responses = 0;
  int samples = 1;           ///< responses to each prompt, whose KV is computed once for all
  double prompt_tokens = 0;  ///< tokens of a prompt, on average
  double response_tokens = 0;
  int groups = 1;
  int max_batch = 1;
  std::int64_t kv_positions = 0;  ///< positions that a group has room for
};

/// Seconds of plain decoding if all groups begin at once, responses are equally long and batches
/// stay full to the end. A run with a long tail takes longer; a run whose drafts pay takes less.
[[nodiscard]] double run_seconds(const CostTable& costs, const RunShape& run);

}  // namespace paceline
