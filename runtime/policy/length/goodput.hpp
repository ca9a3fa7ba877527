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

/// Ratio of measured to predicted seconds of one kind of step: the median of the last few ratios.
/// Neither an outlier nor a short burst of outliers moves it.
class PaceRatio {
 public:
  static constexpr int kSteps = 15;

  void observe(double ratio);
  /// Whether enough steps of the kind were seen.
  [[nodiscard]] bool known() const { return count_ > kSteps / 2; }
  [[nodiscard]] double value() const;  ///< 1 while nothing was seen
  void forget() { count_ = 0; }

 private:
  std::array<double, kSteps> recent_{};  ///< a ring buffer
  int count_ = 0;                        ///< ratios seen, kept below 2 * kSteps
};

/// Maximises goodput (draft_plan.hpp): expected committed tokens a second. Costs are from a table
/// that was measured beforehand; acceptance is measured as the run goes. (This is the DSD of
/// Nightjar's paper. The cost of switching on is here the drafter's catching up, which must pay off
/// while the request lasts.) Lengths differ by request: the tokens of highest value are drafted
/// first, across the batch, up to the best prefix of this order. select() does the same with the
/// drafters' score of each token.
///
/// Drafters are asked from the first on, and later ones only where they raise goodput: an expensive
/// drafter must be worth its seconds to the batch, however good it is for one request. Free
/// drafters are always asked. Each request counts with the most hopeful of the drafters asked.
///
/// The number of parallel paths adapts (Seer, section 4.4) by comparing a price with a worth. A
/// further row costs the goodput of the plan times the row's seconds, which rises with the load. A
/// further path of a request is worth the share of refused tokens that it may catch. So several
/// paths are asked for in the tail, where rows cost next to nothing, and for requests that are hard
/// to draft for.
///
/// The table may be off by a factor, which may differ between plain steps and steps that verify
/// drafts: each kind has one ratio of measured to predicted seconds. The kind not in use is not
/// measured. So now and then some steps, a trial, are of the other kind, as often as a small share
/// of the time pays for. Drafts may also be worth less than acceptance promises, where drafters
/// find nothing for many requests at once or select() drops what they found. Each offer has the
/// ratio of accepted to hoped tokens for it. Nothing else is learned.
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
  /// Decision for the current step.
  struct Step {
    StepShape shape;           ///< without drafts
    int asked = 0;             ///< tokens asked for
    int at_least = 0;          ///< drafted tokens to verify, as many as are found
    double draft_seconds = 0;  ///< predicted, without catching up
    double catch_up = 0;       ///< predicted seconds of catching up
    double row = 0;            ///< committed tokens that a further row must be worth
    double hoped = 0;          ///< accepted tokens that the acceptance of its requests promises
  };

  /// The first `leading` drafters, together with the free ones.
  struct Offer {
    std::size_t leading = 0;
    FadingShare rows;   ///< share of the tokens asked for that was verified
    FadingShare gains;  ///< share of the tokens hoped for that was accepted
    // The plan of the current step, and its inputs.
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
  [[nodiscard]] double gain_share(const Offer& offer) const;
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
  PaceRatio speculative_;  ///< steps that verify drafts, their drafting included
  bool on_ = false;        ///< speculation pays, as far as is known
  int trial_ = 0;          ///< steps of the trial that are still to come
  double spare_ = 0;       ///< seconds that a trial may cost
  int confirmed_ = 0;      ///< trials in a row that changed nothing
  int unlooked_ = 0;       ///< plain steps since choose() last considered drafting
  int alike_ = 0;          ///< steps in a row of the last one's kind
  bool drafted_ = false;   ///< the last step drafted
  Step step_;
  std::vector<Offer> offers_;  ///< by rising cost, at least one
  std::size_t taken_ = 0;      ///< index of the offer whose drafters are asked
  std::vector<double> worth_;  ///< [requests] weight of an accepted token; 0: no drafts
  std::vector<double> next_;   ///< [requests] P(next token is drafted and accepted)
  std::vector<int> order_;
};

}  // namespace paceline::policy
