// Draft lengths by a bandit that learns the best one of each batch size (Nightjar, section 4).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/length/bin_greedy.hpp"
#include "runtime/policy/length/draft_length.hpp"

namespace paceline::policy {

/// Algorithm 1, ADA-BINGREEDY. The arms are the lengths gamma = 0 to Gamma_max, one for all
/// requests of a step; what an arm is worth is learned for each batch size B apart, from nothing,
/// as the mean of the goodput that was measured: committed tokens by the seconds of drafting and of
/// the step. A step is a round of its batch size's BinSchedule; it explores, or plays the arm of
/// least
///
///   1 / goodput(B, gamma) + [last step's gamma = 0 and gamma > 0] c_prefill(L_max, B) / gamma,
///
/// equation 3. c_prefill is the cost table's catching up of B requests by the largest lag L_max of
/// the batch (the paper: a batch's latency is that of its largest lag).
///
/// Where the paper leaves something open:
/// - A block of H explores 2 H^(3/4) of its steps (bin_greedy.hpp), so that regret grows with the
///   power 3/4 of the steps, and not with their root as lemma 2 and theorem 1 have it. Regret by
///   step: tests/bench/README.md.
/// - Exploration samples a length at each round of the bin: lines 9 to 11 stand in the loop over
///   steps.
/// - 1 / goodput of an arm that was not visited is infinite, since its mean begins at 0: it is
///   exploration alone that visits arms.
/// - Both terms of equation 3 are seconds a token, but the first is of the tokens that the batch
///   commits, the second of those that one request drafts in one step: the whole cost is held
///   against a single step. It stays as printed. Turning on again is then nearly always
///   exploration's doing, after which it costs nothing to go on.
/// - "Observed goodput" has the drafter's catching up in it, where there was some, so that it
///   counts twice where equation 3 charges it too. It stays as measured.
/// - gamma_{t-1} is that of the last step, whatever its batch size.
/// - vLLM does not mix prompts with decoding steps, which the paper does not speak of. Here steps
///   do; their time says little, so that such a step is no round: it plays equation 3 and is not
///   learned from.
/// - Where no request has room for gamma tokens, the longest that some request has room for is what
///   is played.
class Nightjar final : public DraftLengthPolicy {
 public:
  /// `costs`: of catching up alone; drafters without points cost nothing. `seed`: of exploration.
  Nightjar(CostTable costs, int max_length, std::uint64_t seed);

  bool considers(const DraftQuery& query) override;
  void choose(const DraftQuery& query, std::span<int> lengths) override;
  void observe(const StepOutcome& measured) override;

 private:
  struct Batch {
    BinSchedule schedule;
    bool explores = false;          ///< the bin under way
    std::vector<MeanGoodput> arms;  ///< [max_length + 1]
  };
  /// What was decided for the step under way.
  struct Step {
    int requests = 0;
    int length = 0;
    bool explores = false;
    bool is_round = false;
  };

  /// The arm of equation 3; `switching`: the seconds that its second term divides.
  [[nodiscard]] int best(const Batch& batch, double switching) const;

  CostTable costs_;
  int max_length_;
  SeededDraws draws_;
  std::vector<Batch> batches_;  ///< [batch size - 1], of those that were seen
  int last_ = 0;                ///< length of the last step
  Step step_;
};

}  // namespace paceline::policy
