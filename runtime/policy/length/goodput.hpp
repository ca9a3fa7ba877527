// Draft lengths that maximise goodput.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/length/acceptance.hpp"
#include "runtime/policy/length/draft_length.hpp"
#include "runtime/policy/plan/draft_plan.hpp"

namespace paceline::policy {

/// Measured over foretold seconds of one kind of step: the median of the last few ratios, which
/// neither an outlier nor a short burst of them moves.
class PaceRatio {
 public:
  static constexpr int kSteps = 15;

  void observe(double ratio);
  /// Whether enough steps of the kind were seen.
  [[nodiscard]] bool known() const { return count_ > kSteps / 2; }
  [[nodiscard]] double value() const;  ///< 1 while nothing was seen
  void forget() { count_ = 0; }

 private:
  std::array<double, kSteps> recent_{};  ///< a ring
  int count_ = 0;                        ///< ratios seen, kept below 2 * kSteps
};

/// Maximises goodput (draft_plan.hpp), expected committed tokens a second, with costs from a table
/// that was measured beforehand and acceptance as it runs. (Nightjar's DSD; its cost of switching
/// on is here the drafter's catching up, which must pay off while the request lasts.) Lengths
/// differ by request: the tokens of highest value are drafted first, across the batch, up to the
/// best prefix of that order. select() does the same with the drafters' score of each token.
///
/// Drafters are asked together from the first on, and the last ones only where they raise goodput:
/// a dear drafter must be worth its seconds to the batch, however good it is for one request. Free
/// drafters are always asked. Each request counts with the most hopeful of the drafters asked.
///
/// Paths side by side adapt (Seer, section 4.4) by two thresholds. A further row must be worth the
/// goodput of the plan times the row's seconds, a price that rises with the load. A request's
/// further path is worth its share of refused tokens, of which a second path catches some. So
/// several paths are asked for in the tail, where rows cost next to nothing, and for requests that
/// are hard to draft for.
///
/// The table may be off by a factor, which may differ between plain steps and steps that verify
/// drafts: each kind has one ratio of measured to foretold seconds. The kind not in use is not
/// measured, nor is its acceptance: now and then, as often as a small share of the time pays for,
/// some steps are made the other way. Nothing else is learned.
class Goodput final : public DraftLengthPolicy {
 public:
  /// `costs`: must have points for steps, and drafters in the order in which they are asked;
  /// drafters without points cost nothing.
  Goodput(CostTable costs, int max_length);

  bool considers(const DraftQuery& query) override;
  void choose(const DraftQuery& query, std::span<int> lengths) override;
  [[nodiscard]] int paths(const DraftQuery& query, int request, int most) const override;
  [[nodiscard]] bool asks(std::size_t drafter) const override;
  void select(const DraftQuery& query, const DraftedTokens& drafted,
              std::span<std::uint8_t> keep) override;
  void observe(const StepOutcome& measured) override;

 private:
  /// Decision for the step under way.
  struct Step {
    StepShape shape;           ///< without drafts
    int asked = 0;             ///< tokens
    int at_least = 0;          ///< drafted tokens to verify, as many as are found
    double draft_seconds = 0;  ///< foretold, without catching up
    double catch_up = 0;       ///< seconds, foretold
    double row = 0;            ///< committed tokens that a further row must be worth
  };

  /// The first `leading` drafters, together with the free ones.
  struct Offer {
    std::size_t leading = 0;
    FadingShare rows;  ///< share of the tokens asked for that was verified
    // Plan of the step under way.
    DraftPlan plan;
    DraftPlanner planner;
    DraftPrices prices;
  };

  [[nodiscard]] double step_seconds(double drafted) const;
  [[nodiscard]] double speculative_ratio() const;
  [[nodiscard]] int settling() const;
  [[nodiscard]] bool is_free(std::size_t drafter) const;
  [[nodiscard]] bool lags(std::size_t leading) const;
  [[nodiscard]] bool cheap(std::size_t leading) const;
  [[nodiscard]] double speedup(double rate) const;
  void count_hopes(const DraftQuery& query, std::size_t leading);
  void plan(const DraftQuery& query, Offer& offer);
  void plan_prefix(const DraftQuery& query, Offer& offer);
  bool leave_out_laggards(const DraftQuery& query, const Offer& offer, double speedup);
  void consider_trial(const DraftQuery& query);
  [[nodiscard]] double row_price(const DraftQuery& query) const;
  void ask(const DraftQuery& query, std::span<const int> lengths);

  CostTable costs_;
  int max_length_;
  PaceRatio plain_;
  PaceRatio speculative_;  ///< steps that verify drafts, with the drafting
  bool on_ = false;        ///< speculation pays, as far as is known
  int trial_ = 0;          ///< steps still to make the other way
  double spare_ = 0;       ///< seconds that a trial may cost
  int confirmed_ = 0;      ///< trials in a row that changed nothing
  int unlooked_ = 0;       ///< plain steps since drafting was last thought of
  int alike_ = 0;          ///< steps in a row of the last one's kind
  bool drafted_ = false;   ///< the last step drafted
  Step step_;
  std::vector<Offer> offers_;  ///< by rising cost, at least one
  std::size_t taken_ = 0;      ///< index of the offer whose drafters are asked
  std::vector<double> worth_;  ///< [requests] what an accepted token counts; 0: not drafted
  std::vector<double> next_;   ///< [requests] P(next token is drafted and accepted)
  std::vector<int> order_;
};

}  // namespace paceline::policy
