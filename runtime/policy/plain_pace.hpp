// What plain decoding costs now, by what it usually costs, and how sure that is.
#pragma once

#include <array>

namespace paceline::policy {

/// Where a step is made.
struct StepPlace {
  double requests = 1;  ///< that decode, >= 1
  double context = 0;   ///< positions that each attends to, on average
  double step = 0;      ///< since decoding began, never falling
};

/// Whether drafts pay is a question of what a plain step would take instead, and while drafts go
/// on nobody sees that: texts grow and attention with them (twofold and more within a rollout),
/// requests finish, others begin, the machine changes its mind. A Kalman filter over plain steps
/// tells how they compare with what was learned of as many requests (StepCost), and how far to
/// trust that where none was measured. The logarithm of a plain step's seconds over the usual ones
/// is the sum of
///   - what all steps have in common: a level that drifts, and a slope in the logarithm of the
///     context, which bends;
///   - what is true near this number of requests only, where the usual seconds are interpolated:
///     forgotten as the number changes, so that it does not pass for a change of all costs, and
///     as steps of so many requests become usual.
/// Not thread-safe.
class PlainPace {
 public:
  /// What any step takes at `place`, by what it usually takes.
  [[nodiscard]] double common(const StepPlace& place) const;
  /// What plain steps of so many requests take, by what they would if that were all.
  [[nodiscard]] double local(double requests) const;
  /// Standard error of a plain step's seconds at `place`, as a share of them.
  [[nodiscard]] double doubt(const StepPlace& place) const;

  /// A plain step. ratio: its seconds over the usual ones; ignored unless > 0. noise: the standard
  /// error of that, relative.
  void observe(const StepPlace& place, double ratio, double noise);

 private:
  static constexpr int kTerms = 3;  ///< common level, slope in the context, local
  using Vector = std::array<double, kTerms>;
  struct State {
    Vector mean{};
    std::array<Vector, kTerms> covariance{};
    /// Of level and local, which is what a step shows.
    [[nodiscard]] Vector covariance_with_sum() const;
    [[nodiscard]] double variance_of_sum() const;
  };
  [[nodiscard]] State predict(const StepPlace& place) const;

  bool begun_ = false;
  StepPlace last_;  ///< that was observed
  State state_;     ///< there
};

}  // namespace paceline::policy
