// Blocks, bins and rounds by which a bandit explores: ADA-BINGREEDY (Nightjar, section 4.2).
#pragma once

#include <cmath>
#include <cstdint>

namespace paceline::policy {

/// The hierarchy of Algorithm 1 for one batch size, lines 3 and 16 to 22. A block of duration H has
/// floor(sqrt(H)) bins of as many rounds, each a step; H doubles from block to block. So blocks
/// last 1, 1, 4, 4, 16, 25, 64 ... steps where H is 1, 2, 4, 8, 16, 32, 64 ...
///
/// The first bin of each block explores with certainty, and so does the very first step: before any
/// step exploits an arm, an arm has been visited. Bin b explores with probability 1 / sqrt(b). Of
/// the sqrt(H) bins of a block about 2 H^(1/4) explore, each of sqrt(H) steps.
class BinSchedule {
 public:
  [[nodiscard]] int block() const { return block_; }  ///< j, from 1
  [[nodiscard]] int bin() const { return bin_; }      ///< b, from 1
  [[nodiscard]] int round() const { return round_; }  ///< tau, from 1
  [[nodiscard]] std::int64_t duration() const { return std::int64_t{1} << (block_ - 1); }  ///< H
  [[nodiscard]] bool begins_bin() const { return round_ == 1; }
  /// Probability that the bin that begins explores.
  [[nodiscard]] double exploration() const { return 1 / std::sqrt(bin_); }
  /// Goes on to the next round.
  void advance();

 private:
  /// Whether x > sqrt(H).
  [[nodiscard]] bool past_root(std::int64_t x) const { return x * x > duration(); }

  int block_ = 1;
  int bin_ = 1;
  int round_ = 1;
};

/// Random numbers from a seed and a counter: equal seeds, equal numbers.
class SeededDraws {
 public:
  explicit SeededDraws(std::uint64_t seed) : seed_(seed) {}
  double uniform() { return word() * 0x1p-32; }  ///< in [0, 1)
  int below(int bound) {                         ///< in [0, bound)
    return static_cast<int>(std::uint64_t{word()} * static_cast<std::uint64_t>(bound) >> 32);
  }

 private:
  std::uint32_t word();

  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
};

}  // namespace paceline::policy
