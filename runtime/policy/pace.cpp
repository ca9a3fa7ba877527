#include "runtime/policy/pace.hpp"

#include <algorithm>
#include <cmath>

namespace paceline::policy {
namespace {

constexpr double square(double x) { return x * x; }

// Variances of logarithms.
constexpr double kNoise = square(0.06);          ///< of a measurement
constexpr double kCommonWander = square(0.003);  ///< a step
constexpr double kContextWander = square(0.1);   ///< per squared change of context, by factors e
constexpr double kOwnVariance = square(0.1);     ///< while nothing is known
constexpr double kOwnWander = square(0.002);     ///< a step that speculates
constexpr double kElasticityVariance = square(0.25);  ///< while nothing is known
constexpr double kElasticityWander = square(0.05);    ///< per change of context by a factor e
constexpr double kFading = 0.99;  ///< of what speculation alone takes, in a plain step
/// Positions that cost next to nothing beside the rest of a step: from 1 to 2 is no doubling.
constexpr double kLeastContext = 64;
constexpr double kMostSurprise = 2.5;  ///< standard deviations that a measurement is believed
constexpr int kLasting = 4;            ///< surprises in a row that are no outliers

}  // namespace

void Pace::pass(double context, bool speculating) {
  double change = 0;
  if (context > 0) {
    if (context_ > 0) change = std::log((context + kLeastContext) / (context_ + kLeastContext));
    context_ = context;
  }
  // mean = F mean, covariance = F covariance F' + wander.
  const double kept = speculating ? 1 : kFading;
  const std::array<Vector, kStates> f{{{1, 0, change}, {0, kept, 0}, {0, 0, 1}}};
  const auto times_f = [&f](const std::array<Vector, kStates>& m) {  // (F m)'
    std::array<Vector, kStates> product{};
    for (int i = 0; i < kStates; ++i) {
      for (int j = 0; j < kStates; ++j) {
        for (int k = 0; k < kStates; ++k) product[j][i] += f[i][k] * m[k][j];
      }
    }
    return product;
  };
  covariance_ = times_f(times_f(covariance_));
  mean_[kCommon] += change * mean_[kElasticity];
  mean_[kOwn] *= kept;

  covariance_[kCommon][kCommon] += kCommonWander + square(change) * kContextWander;
  covariance_[kOwn][kOwn] += speculating ? kOwnWander : (1 - square(kept)) * kOwnVariance;
  double& elasticity = covariance_[kElasticity][kElasticity];
  elasticity = std::min(elasticity + kElasticityWander * std::abs(change), kElasticityVariance);
}

void Pace::observe(double ratio, bool speculating) {
  if (!(ratio > 0)) return;
  const double own = speculating ? 1 : 0;
  Vector shared{};  // covariance of the states with what is measured
  for (int i = 0; i < kStates; ++i)
    shared[i] = covariance_[i][kCommon] + own * covariance_[i][kOwn];
  const double variance = shared[kCommon] + own * shared[kOwn] + kNoise;
  double surprise = std::log(ratio) - mean_[kCommon] - own * mean_[kOwn];

  const double most = kMostSurprise * std::sqrt(variance);
  if (std::abs(surprise) <= most) {
    surprises_ = 0;
  } else {
    surprises_ = surprise > 0 ? std::max(0, surprises_) + 1 : std::min(0, surprises_) - 1;
    if (std::abs(surprises_) == kLasting) {  // from now on anything is believed
      covariance_[kCommon][kCommon] += square(surprise);
      surprises_ = 0;
      return;
    }
    surprise = std::clamp(surprise, -most, most);
  }
  for (int i = 0; i < kStates; ++i) {
    const double gain = shared[i] / variance;
    mean_[i] += gain * surprise;
    for (int j = 0; j < kStates; ++j) covariance_[i][j] -= gain * shared[j];
  }
  mean_[kElasticity] = std::clamp(mean_[kElasticity], 0.0, 1.0);
}

double Pace::common() const { return std::exp(mean_[kCommon]); }
double Pace::speculation() const { return std::exp(mean_[kOwn]); }

}  // namespace paceline::policy
