#include "runtime/policy/plain_pace.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/policy/step_cost.hpp"

namespace paceline::policy {
namespace {

constexpr double kMostJump = 0.18;    ///< that one step is believed upwards: outliers are slow
constexpr double kMostFall = 3;       ///< and downwards, in standard errors, if that is more
constexpr double kDrift = 2e-6;       ///< variance of the common level a step
constexpr double kFirstSlope = 0.1;   ///< in the context, 0: none of a step depends on it, 1: all
constexpr double kSlopeDoubt = 0.2;   ///< of that
constexpr double kBend = 0.05;        ///< of the slope as the context grows e-fold
constexpr double kShortContext = 16;  ///< below it nothing depends on the context
constexpr double kLocal = 0.1;        ///< of what is local, relative
/// Of what is local, that the usual seconds take in with a step.
constexpr double kLocalTaken = 1 / StepCost::kMemory;
constexpr double kLocalReach = 0.5;  ///< logarithm of a ratio of requests over which it fades

double length(const StepPlace& place) { return std::log(place.context + kShortContext); }

/// Share of what is local that is left from one number of requests to another.
double kept(double from, double to) {
  return std::exp(-std::abs(std::log(to / from)) / kLocalReach);
}

}  // namespace

PlainPace::Vector PlainPace::State::covariance_with_sum() const {
  Vector with{};
  for (int i = 0; i < kTerms; ++i) with[i] = covariance[i][0] + covariance[i][2];
  return with;
}

double PlainPace::State::variance_of_sum() const {
  const Vector with = covariance_with_sum();
  return with[0] + with[2];
}

PlainPace::State PlainPace::predict(const StepPlace& place) const {
  State next = state_;
  if (!begun_) {
    next.mean[1] = kFirstSlope;
    next.covariance[1][1] = kSlopeDoubt * kSlopeDoubt;
    return next;
  }
  const double longer = length(place) - length(last_);
  const double keep = kept(last_.requests, place.requests);
  next.mean[0] += longer * state_.mean[1];
  next.mean[2] *= keep;
  // covariance = F covariance F' + Q for F = [1 longer 0; 0 1 0; 0 0 keep].
  const auto advance = [&](Vector& v) {
    v[0] += longer * v[1];
    v[2] *= keep;
  };
  for (Vector& row : next.covariance) advance(row);
  for (int column = 0; column < kTerms; ++column) {
    Vector v{};
    for (int row = 0; row < kTerms; ++row) v[row] = next.covariance[row][column];
    advance(v);
    for (int row = 0; row < kTerms; ++row) next.covariance[row][column] = v[row];
  }
  const double bend = kBend * kBend * std::abs(longer);
  next.covariance[0][0] += kDrift * (place.step - last_.step) + longer * longer * bend;
  next.covariance[1][1] += bend;
  next.covariance[2][2] += kLocal * kLocal * (1 - keep * keep);
  return next;
}

double PlainPace::common(const StepPlace& place) const { return std::exp(predict(place).mean[0]); }

double PlainPace::local(double requests) const {
  return begun_ ? std::exp(state_.mean[2] * kept(last_.requests, requests)) : 1;
}

double PlainPace::doubt(const StepPlace& place) const {
  return std::sqrt(predict(place).variance_of_sum());
}

void PlainPace::observe(const StepPlace& place, double ratio, double noise) {
  if (!(ratio > 0)) return;  // a clock that jumped
  state_ = predict(place);
  last_ = place;
  begun_ = true;
  state_.mean[2] *= 1 - kLocalTaken;
  for (Vector& row : state_.covariance) row[2] *= 1 - kLocalTaken;
  for (double& covariance : state_.covariance[2]) covariance *= 1 - kLocalTaken;
  const double variance = state_.variance_of_sum();
  const double surprise = std::log(ratio) - state_.mean[0] - state_.mean[2];
  const double least = -std::max(kMostJump, kMostFall * std::sqrt(variance));
  const double believed = std::clamp(surprise, least, kMostJump);
  const Vector with = state_.covariance_with_sum();
  const double total = variance + noise * noise;
  for (int i = 0; i < kTerms; ++i) state_.mean[i] += with[i] / total * believed;
  state_.mean[1] = std::clamp(state_.mean[1], 0.0, 1.0);
  if (believed != surprise) return;  // an outlier, or all has changed: no surer now
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) state_.covariance[i][j] -= with[i] * with[j] / total;
  }
}

}  // namespace paceline::policy
