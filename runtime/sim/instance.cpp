#include "runtime/sim/instance.hpp"

#include <algorithm>

namespace paceline::sim {

double Instance::step_seconds(int member, const StepShape& shape, double now) {
  Step& own = last_.at(member);
  own.own = costs_->own.step_seconds(shape);
  own.rows = shape.requests + shape.drafted + shape.prefill_rows;
  own.until = now;
  double longest = 0;
  double rows = 0;
  for (const Step& step : last_) {
    if (step.until < now) continue;
    longest = std::max(longest, step.own);
    rows += step.rows;
  }
  const double seconds = longest + costs_->experts.seconds(rows);
  own.until = now + 1.5 * seconds;
  return seconds;
}

}  // namespace paceline::sim
