// What a step and a draft cost, learned from measurements.
#pragma once

#include <array>
#include <limits>
#include <vector>

namespace paceline::policy {

/// Seconds of one forward pass as a function of the rows it computes, learned while running on a
/// machine that may be shared. Row counts are gathered in knots (each count up to 8, then eight an
/// octave). A knot follows its measurements with outliers clipped, and starts over where they have
/// settled elsewhere. Each follows its own: a trend shared by all would let the rows that are
/// measured most bend what is believed of the others. The curve through the knots is the nearest
/// that never falls. Not thread-safe.
class StepCost {
 public:
  static constexpr double kMemory = 24;  ///< measurements a knot averages over

  /// rows >= 1; seconds > 0 (others are ignored: a clock that jumped).
  void observe(double rows, double seconds);

  /// Expected seconds, never falling in rows; 0 while nothing was observed. Between knots it is
  /// linear; past the last it goes on with the slope of the last octave, which lies between flat
  /// and proportional to rows.
  [[nodiscard]] double seconds(double rows) const;
  /// The least it may be, as far as is known: what fewer rows cost, less the doubt about that.
  /// Optimism that trials at `rows` settle.
  [[nodiscard]] double least_seconds(double rows) const;
  /// Whether it was measured, more than once, at about so many rows.
  [[nodiscard]] bool known(double rows) const;

  /// Measured row counts on both sides of `rows`; 0 where there are none.
  struct Gap {
    double below = 0;
    double above = 0;
  };
  [[nodiscard]] Gap gap(double rows) const;
  /// Fewest and most rows measured; 0: none.
  [[nodiscard]] double smallest() const { return curve_.empty() ? 0 : curve_.front().rows; }
  [[nodiscard]] double largest() const { return curve_.empty() ? 0 : curve_.back().rows; }

 private:
  static constexpr int kRecent = 5;
  struct Knot {
    double rows = 0;  ///< mean of the counts gathered here
    double seconds = 0;
    double deviation = 0;  ///< mean absolute, relative to seconds
    double count = 0;
    int slow = 0;                        ///< measurements in a row far above the knot
    std::array<double, kRecent> recent;  ///< measurements, a ring; infinite at first
    Knot() { recent.fill(std::numeric_limits<double>::infinity()); }
    [[nodiscard]] double median() const;
  };
  struct Point {
    double rows = 0;
    double seconds = 0;
    double weight = 0;
    double deviation = 0;
  };
  void fit();
  /// First point of the curve past `rows`.
  [[nodiscard]] std::vector<Point>::const_iterator past(double rows) const;

  std::vector<Knot> knots_;   ///< by index, unvisited ones have count 0
  std::vector<Point> curve_;  ///< visited knots, made monotone
};

/// Seconds of a propose call of one drafter. A draft model runs one forward pass a round over the
/// requests that still draft in it, after catching up on tokens committed without it; trees and
/// n-grams cost next to nothing and have no lag. Not thread-safe.
class DraftCost {
 public:
  struct Call {
    int rounds = 0;    ///< length of the longest draft asked for
    int rows = 0;      ///< tokens asked for: requests that draft, summed over rounds
    int catch_up = 0;  ///< tokens the drafter had to compute before
    double seconds = 0;
  };
  void observe(const Call& call);

  /// Of one round over so many requests; 0 while nothing is known.
  [[nodiscard]] double round_seconds(double requests) const { return round_.seconds(requests); }
  [[nodiscard]] double least_round_seconds(double requests) const {
    return round_.least_seconds(requests);
  }
  /// Of a call, for as many tokens of all its requests; 0 while nothing is known. Fewer than were
  /// ever measured cost their share, for a few are computed in the rounds.
  [[nodiscard]] double catch_up_seconds(double tokens) const;
  [[nodiscard]] bool catch_up_known() const { return catch_up_.largest() > 0; }
  /// Most requests a round was measured with; 0: none.
  [[nodiscard]] double largest() const { return round_.largest(); }

 private:
  StepCost round_;
  StepCost catch_up_;  ///< by tokens
};

}  // namespace paceline::policy
