// What trying things out may cost.
#pragma once

#include <algorithm>

namespace paceline::policy {

/// Time lost against a sure way of doing the same work, gains deducted, and how much more may be
/// lost: a share of the time elapsed, and an allowance to begin with. All in seconds. Not
/// thread-safe.
class LossAccount {
 public:
  explicit LossAccount(double share) : share_(share) {}

  void elapse(double seconds) { elapsed_ += seconds; }
  /// Negative: gained. What was gained pays for what was lost before, not after.
  void lose(double seconds) { lost_ = std::max(0.0, lost_ + seconds); }
  /// The allowance from now on, if it is more than before.
  void allow(double seconds) { allowance_ = std::max(allowance_, seconds); }
  /// Forgets losses until at least `seconds` may be lost.
  void relieve(double seconds) {
    lost_ = std::min(lost_, std::max(0.0, allowance_ + share_ * elapsed_ - seconds));
  }

  /// What may be lost.
  [[nodiscard]] double balance() const { return allowance_ + share_ * elapsed_ - lost_; }
  /// What may be lost to learn something. The rest is for going ahead in earnest when that pays at
  /// last, with all that it takes to begin.
  [[nodiscard]] double to_explore() const { return balance() - kReserve * share_ * elapsed_; }

 private:
  static constexpr double kReserve = 0.5;

  double share_;
  double allowance_ = 0;
  double elapsed_ = 0;
  double lost_ = 0;
};

}  // namespace paceline::policy
