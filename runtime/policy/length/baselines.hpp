// Published draft-length policies: Nightjar's bandit (section 4), and the baselines of its
// evaluation (section 6.1): BanditSpec, TETRIS and DSD.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/length/bin_greedy.hpp"
#include "runtime/policy/length/draft_length.hpp"
#include "runtime/policy/plan/draft_plan.hpp"

namespace paceline::policy {

/// A bandit that learns the best length of each batch size.
///
/// Algorithm 1, ADA-BINGREEDY. The arms are the lengths gamma = 0 to Gamma_max, one for all
/// requests of a step. An arm's worth is learned for each batch size B separately, from nothing: it
/// is the mean measured goodput, committed tokens over the seconds of drafting and of the step. A
/// step is a round of its batch size's BinSchedule: it explores, or plays the arm of least
///
///   1 / goodput(B, gamma) + [last step's gamma = 0 and gamma > 0] c_prefill(L_max, B) / gamma,
///
/// equation 3. c_prefill is the cost table's catching up of B requests by the largest lag L_max of
/// the batch (the paper: the largest lag determines a batch's latency).
///
/// Choices that the paper leaves open:
/// - A block of H explores 2 H^(3/4) of its steps (bin_greedy.hpp), so that regret grows with the
///   power 3/4 of the steps, not with their root as lemma 2 and theorem 1 have it. Regret by step:
///   tests/bench/README.md.
/// - Exploration samples a length at each round of the bin, for lines 9 to 11 stand in the loop
///   over steps.
/// - An unvisited arm has an infinite 1 / goodput, since its mean begins at 0: only exploration
///   visits arms.
/// - Both terms of equation 3 are seconds a token. But the first counts tokens that the batch
///   commits, and the second tokens that one request drafts in one step: a single step is charged
///   the whole cost. The equation is used as printed. Drafting then resumes nearly always by
///   exploration, after which going on costs nothing.
/// - "Observed goodput" includes the drafter's catching up, which equation 3 charges too. Goodput
///   is used as measured.
/// - gamma_{t-1} is the last step's, for any batch size.
/// - A step with prompt rows is no round, for its time says little: it plays the arm of equation 3,
///   and nothing is learned from it. (vLLM does not mix prompts with decoding; the paper does not
///   speak of it.)
/// - Where no request has room for gamma tokens, the longest draft that some request has room for
///   is played.
class Nightjar final : public DraftLengthPolicy {
 public:
  /// `costs`: only the costs of catching up are read; drafters without points cost nothing. `seed`:
  /// seeds exploration.
  Nightjar(CostTable costs, int max_length, std::uint64_t seed);

  bool considers(const DraftQuery& query) override;
  void choose(const DraftQuery& query, std::span<int> lengths) override;
  void observe(const StepOutcome& measured) override;

 private:
  struct Batch {
    BinSchedule schedule;
    bool explores = false;          ///< whether the bin explores
    std::vector<MeanGoodput> arms;  ///< [max_length + 1]
  };
  /// Decision for the current step.
  struct Step {
    int requests = 0;
    int length = 0;
    bool explores = false;
    bool is_round = false;
  };

  /// The arm of equation 3; `switching`: c_prefill(L_max, B), the seconds in its second term.
  [[nodiscard]] int best(const Batch& batch, double switching) const;

  CostTable costs_;
  int max_length_;
  SeededDraws draws_;
  std::vector<Batch> batches_;  ///< [batch size - 1] of the batch sizes seen
  int last_ = 0;                ///< length of the last step
  Step step_;
};

/// A bandit that does not know the batch.
///
/// Takes the upper confidence bound over the lengths 0 to `max_length`, one length for all requests
/// of a step. Each arm is played once, then always the arm of the highest
///
///   goodput / highest goodput seen + sqrt(2 ln(steps) / visits),
///
/// UCB1 with rewards scaled into [0, 1]. Goodput is measured as for Nightjar, but over all batch
/// sizes together. Steps with prompt rows play the same arm, and nothing is learned from them.
/// Nightjar's paper describes the policy in two sentences and names a "variant" of the bound; we
/// take the plain bound. Length 0 is an arm as everywhere here, so that policies differ only in how
/// they choose.
class BanditSpec final : public DraftLengthPolicy {
 public:
  explicit BanditSpec(int max_length) : arms_(max_length + 1) {}

  bool considers(const DraftQuery& query) override;
  void choose(const DraftQuery& query, std::span<int> lengths) override;
  void observe(const StepOutcome& measured) override;

 private:
  [[nodiscard]] int best() const;

  std::vector<MeanGoodput> arms_;  ///< [max_length + 1]
  double highest_ = 0;             ///< highest mean goodput seen of an arm, tokens a second
  int length_ = 0;                 ///< length of the current step
  bool is_round_ = false;
};

/// Drafts a fixed length and verifies the likeliest tokens.
///
/// Every step drafts `max_length` tokens for each request, and verifies as many of them as the
/// budget has rows: the tokens whose paths are likeliest accepted, over the whole batch
/// (order_by_value()). Nightjar's paper speaks of "a predefined computational budget" without its
/// size, and ranks tokens by predictive entropy; TETRIS itself ranks them by the probability of
/// acceptance, as here.
class Tetris final : public DraftLengthPolicy {
 public:
  /// Largest share of the tokens asked for that is verified: half, so that there is a real choice.
  static constexpr double kBudget = 0.5;

  explicit Tetris(int max_length) : max_length_(max_length) {}

  bool considers(const DraftQuery& query) override { return query.requests > 0; }
  void choose(const DraftQuery& query, std::span<int> lengths) override {
    draft_alike(query, max_length_, lengths);
  }
  void select(const DraftQuery& query, const DraftedTokens& drafted,
              std::span<std::uint8_t> keep) override;

 private:
  int max_length_;
  std::vector<int> order_;
};

/// One draft length for the batch, by historical acceptance and linear costs.
///
/// Chooses the length of the highest goodput (draft_plan.hpp), the same for all requests; 0 where
/// plain decoding is predicted to be faster. Unlike the policy Goodput, it has no lengths by
/// request, no selection among drafted tokens, no correction of costs by measured steps, and no
/// trials of the choice that is not in use.
///
/// Acceptance is the batch's mean at the last verification. Where it is too low for drafts to pay,
/// nothing is drafted and the mean stays: the paper's deadlock. Latency is a straight line through
/// the points of each cost curve (the paper: linear regression, fitted offline). The drafter's
/// catching up is not charged.
class Dsd final : public DraftLengthPolicy {
 public:
  /// `costs`: must have points for steps; drafters without points cost nothing.
  Dsd(const CostTable& costs, int max_length);

  bool considers(const DraftQuery& query) override { return query.requests > 0; }
  void choose(const DraftQuery& query, std::span<int> lengths) override;

 private:
  CostTable costs_;
  int max_length_;
  DraftPlanner planner_;
  DraftPrices prices_;
  std::vector<double> acceptance_;  ///< [requests] the mean
  std::vector<double> worth_;       ///< [requests] 1
};

}  // namespace paceline::policy
