#include "runtime/policy/context_trend.hpp"

#include <algorithm>

namespace paceline::policy {
namespace {

constexpr double kMemory = 256;  ///< steps
/// Contexts that spread less than this share of their mean say little: noise would pass for slope.
constexpr double kLeastSpread = 0.1;
constexpr double kMostFactor = 4;

}  // namespace

void ContextTrend::observe(double context, double seconds) {
  if (!(context > 0) || !(seconds > 0)) return;
  if (weight_ == 0) reference_ = context;
  constexpr double kKept = 1 - 1 / kMemory;
  weight_ = kKept * weight_ + 1;
  context_ = kKept * context_ + context;
  seconds_ = kKept * seconds_ + seconds;
  squares_ = kKept * squares_ + context * context;
  products_ = kKept * products_ + context * seconds;
}

/// Of seconds in the context at its mean: 0, no part of a step depends on it; 1, all of it does.
double ContextTrend::elasticity() const {
  const double mean = context_ / weight_;
  const double variance = std::max(0.0, squares_ / weight_ - mean * mean);
  const double covariance = products_ / weight_ - mean * seconds_ / weight_;
  const double doubt = kLeastSpread * mean;
  return std::clamp(covariance / (variance + doubt * doubt) * context_ / seconds_, 0.0, 1.0);
}

double ContextTrend::factor(double context) const {
  if (weight_ == 0 || !(context > 0)) return 1;
  const double mean = context_ / weight_;
  const double slope = elasticity();
  const auto line = [&](double at) { return 1 + slope * (at / mean - 1); };
  const double factor = line(context) / std::max(line(reference_), 1 / kMostFactor);
  return std::clamp(factor, 1 / kMostFactor, kMostFactor);
}

}  // namespace paceline::policy
