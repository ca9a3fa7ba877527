// Selection of the tokens that a batch drafts, by their value and their costs.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/length/draft_length.hpp"

namespace paceline::policy {

/// A token that might be drafted.
struct DraftCandidate {
  double value;  ///< expected gain, tokens
  int depth;     ///< 1 for a request's first token
  int request;
};

/// A plan: the first `tokens` of those candidates that are no deeper than `depth`.
struct DraftPlan {
  int tokens = 0;
  int depth = 0;
  double gain = 0;  ///< tokens
  double seconds = 0;
  double rate = 0;  ///< tokens a second, the requests' own tokens included
};

/// Seconds by number of candidates or requests, for quick lookup.
struct DraftPrices {
  std::vector<double> step;   ///< [candidates + 1] a step that verifies this many candidates
  std::vector<double> first;  ///< [requests + 1] drafting the first token for this many requests
  std::vector<double> round;  ///< [requests + 1] drafting a further token for this many requests

  /// Fills `first` and `round`, for the first `leading` drafters together.
  void of_drafting(const CostTable& costs, const DraftQuery& query,
                   std::size_t leading = CostTable::kAllDrafters);
  /// Fills `step` for 0 to `candidates` candidates, each with `rows` rows to verify.
  void of_steps(const CostTable& costs, const DraftQuery& query, std::size_t candidates,
                double rows);
};

/// The step of a query, without drafts.
[[nodiscard]] StepShape plain_step(const DraftQuery& query);

/// Orders candidates across the batch by falling value (TETRIS), and finds the prefix of this order
/// with the highest goodput:
///
///   (requests + sum of values) / (draft seconds + step seconds(rows)).
///
/// Not thread-safe.
class DraftPlanner {
 public:
  /// Lists the candidates of a batch: for each request at most `max_length` tokens, and at most its
  /// longest_draft. `worth`: [requests] weight of an accepted token; 0: nothing is drafted. Tokens
  /// of very small value are left out, except for the first token of a request.
  void list(const DraftQuery& query, std::span<const double> worth, int max_length);
  [[nodiscard]] std::span<const DraftCandidate> candidates() const { return candidates_; }

  /// Prefixes to look at: all of them, or only those of whole rounds.
  enum class Prefixes : unsigned char { all, whole_rounds };
  /// The prefix of highest rate over all depths. It is empty only if there are no candidates.
  [[nodiscard]] DraftPlan best(const DraftQuery& query, const DraftPrices& prices,
                               Prefixes prefixes = Prefixes::all) const;
  /// Calls f(candidate) for the candidates of a plan, by falling value.
  template <class F>
  void for_each(const DraftPlan& plan, F&& f) const {
    int seen = 0;
    for (const DraftCandidate& candidate : candidates_) {
      if (candidate.depth > plan.depth) continue;
      if (seen++ == plan.tokens) break;
      f(candidate);
    }
  }

 private:
  std::vector<DraftCandidate> candidates_;  ///< by falling value
};

}  // namespace paceline::policy
