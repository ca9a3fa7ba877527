#include "runtime/sim/instance.hpp"

#include <algorithm>

namespace paceline::sim {

double Instance::step_seconds(int member, const StepShape& shape, double now) {
  Step& mine = last_.at(member);
  mine.own = costs_->own.step_seconds(shape);
  mine.rows = shape.requests + shape.drafted + shape.prefill_rows;
  mine.counts_until = now;
  double longest = 0;
  double most = 0;
  double rows = 0;
  for (const Step& step : last_) {
    if (step.counts_until < now) continue;
    longest = std::max(longest, step.own);
    most = std::max(most, step.rows);
    rows += step.rows;
  }
  const double seconds = longest + costs_->experts.seconds(rows) +
                         std::max(costs_->sent.seconds(most), costs_->received.seconds(rows));
  mine.counts_until = now + kCounts * seconds;
  return seconds;
}

}  // namespace paceline::sim
