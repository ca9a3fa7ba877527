// How far the cost table is off: what steps take by what was foretold of them.
#pragma once

#include <array>
#include <span>
#include <vector>

namespace paceline::policy {

/// What steps of one kind took of late, by what the cost table foretold: the median of the last
/// few, which neither an outlier nor a short burst of them moves.
class PaceRatio {
 public:
  static constexpr int kSteps = 15;

  void observe(double ratio);
  /// Whether the kind was seen often enough to say.
  [[nodiscard]] bool known() const { return count_ > kSteps / 2; }
  [[nodiscard]] double value() const;  ///< 1 while nothing was seen

 private:
  std::array<double, kSteps> recent_{};  ///< a ring
  int count_ = 0;                        ///< seen, of which the last kSteps are held
};

/// The same of steps that verify drafts, by the longest draft of the step and the octave of the
/// batch size: as an arm of Nightjar's, but its prior is the table, batch sizes share what they
/// learn, and lengths differ by request below the longest. Not thread-safe.
class LengthPaces {
 public:
  explicit LengthPaces(int max_length) : max_length_(max_length) {}

  /// A step took so much by what was foretold. `longest`: from 1.
  void observe(int requests, int longest, double ratio);
  /// By what factor drafts of each length are slower than drafts are as a whole; [max_length + 1],
  /// from length 1. An octave that has not seen a length enough takes the mean of its neighbours
  /// that have. `plain`, `speculative`: what all plain and all other steps took by the table. Where
  /// nothing is known of a length it is taken to be halfway between the two: nearer to the table
  /// than those that were tried if they turned out slow, so that it is tried in its turn; farther
  /// from it if the table is wrong about drafting itself.
  void factors(int requests, double plain, double speculative, std::vector<double>& out) const;

 private:
  [[nodiscard]] const PaceRatio* known(int octave, int length) const;

  int max_length_;
  std::vector<std::vector<PaceRatio>> paces_;  ///< [octave][length]
};

}  // namespace paceline::policy
