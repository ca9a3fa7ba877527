#include "runtime/costs/run_seconds.hpp"

#include <algorithm>
#include <cmath>

namespace paceline {

double run_seconds(const CostTable& costs, const RunShape& run) {
  const double of_group = std::ceil(run.responses / run.groups);
  if (of_group == 0) return 0;
  const double longest = run.prompt_tokens + run.response_tokens;
  const double room = std::floor(static_cast<double>(run.kv_positions) / std::max(1.0, longest));
  const double batch =
      std::max(1.0, std::min({static_cast<double>(run.max_batch), of_group, room}));
  const double steps = of_group * run.response_tokens / batch;
  const double context = run.prompt_tokens + run.response_tokens / 2;
  const double prompts = std::ceil(of_group / run.samples);
  return steps * costs.decode.seconds(batch, context) +
         prompts * costs.recompute_seconds(run.prompt_tokens, 0);
}

}  // namespace paceline
