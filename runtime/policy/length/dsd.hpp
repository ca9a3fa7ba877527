// One draft length for the batch, by historical acceptance and linear costs: DSD, a baseline of
// Nightjar's (section 6.1).
#pragma once

#include <span>
#include <vector>

#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/length/draft_length.hpp"
#include "runtime/policy/plan/draft_plan.hpp"

namespace paceline::policy {

/// The length of the highest goodput (draft_plan.hpp), the same for all requests; 0 where plain
/// decoding is foretold to be faster. Goodput is this with lengths by request, judging what was
/// drafted, costs corrected by what steps take, and trials of what is not done.
///
/// Acceptance is the batch's mean as it was when drafts were last verified. Where it is too low for
/// drafts to pay, nothing is drafted, and so it stays what it is: the paper's deadlock. Latency is
/// a straight line through the points of each cost curve (the paper: linear regression, fitted
/// offline). The drafter's catching up is not reckoned with.
class Dsd final : public DraftLengthPolicy {
 public:
  /// `costs` must have points for steps; drafters without points cost nothing.
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
