// How the cost of decoding follows the length of the texts.
#pragma once

namespace paceline::policy {

/// Attention makes steps longer as responses grow: twofold and more within a rollout whose requests
/// began together. Costs learned at one length mislead at another, unless they are compared as if
/// all had been measured at the same. Learns seconds of plain decoding as a line in the context by
/// least squares; older measurements fade. Not thread-safe.
class ContextTrend {
 public:
  /// A plain step. context: positions that a request attends to, on average; ignored where 0.
  void observe(double context, double seconds);
  void forget() { *this = {}; }

  /// What a step takes with this context, by what it takes with the first that was observed since
  /// forget(). Between 0.25 and 4; 1 while the context has hardly changed.
  [[nodiscard]] double factor(double context) const;

 private:
  [[nodiscard]] double elasticity() const;

  double reference_ = 0;  ///< context that costs are compared at
  double weight_ = 0;     ///< of the sums below, which fade
  double context_ = 0, seconds_ = 0, squares_ = 0, products_ = 0;
};

}  // namespace paceline::policy
