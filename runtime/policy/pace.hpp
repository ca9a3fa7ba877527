// How long steps take of late, by what they usually take.
#pragma once

#include <array>

namespace paceline::policy {

/// Costs learned at one time mislead at another: responses grow and with them attention, batches
/// begin anew, machines are shared. Most of that strikes plain steps and those that speculate
/// alike, and only how the two compare matters for a decision. A Kalman filter on the logarithm of
/// measured by usual seconds holds three things apart:
///  - a factor common to all steps, which wanders, the more the context changes;
///  - a factor of speculation alone, which stays but is forgotten while decoding is plain;
///  - the elasticity of the common factor in the context.
/// While decoding is plain the first is measured, so that what changes when drafts begin is the
/// second; while they go on, what changes is the first again, and a plain step tells how much of it
/// was. Not thread-safe.
class Pace {
 public:
  /// A step was made, measured or not. context: positions that a request attends to, on average; 0:
  /// unknown.
  void pass(double context, bool speculating);
  /// The last step passed: its seconds by the usual ones (ignored unless > 0). Bursts of slow steps
  /// hardly count, a lasting change is followed within a few.
  void observe(double ratio, bool speculating);

  /// Of late, by what is usual: seconds of all steps.
  [[nodiscard]] double common() const;
  /// Beyond that, seconds of steps that speculate.
  [[nodiscard]] double speculation() const;

 private:
  enum State { kCommon, kOwn, kElasticity, kStates };
  using Vector = std::array<double, kStates>;

  Vector mean_{};
  std::array<Vector, kStates> covariance_{{{0.01, 0, 0}, {0, 0.01, 0}, {0, 0, 0.0625}}};
  double context_ = 0;
  int surprises_ = 0;  ///< in a row: how often the ratio was far above (or, negative, below)
};

}  // namespace paceline::policy
