// Which tokens of a batch to draft, given what they are worth and what they cost.
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

/// The first `tokens` of the candidates no deeper than `depth`.
struct DraftPlan {
  int tokens = 0;
  int depth = 0;
  double gain = 0;  ///< tokens
  double seconds = 0;
  double rate = 0;  ///< tokens a second, those included that plain decoding would give
};

/// Seconds by number, looked up often.
struct DraftPrices {
  std::vector<double> step;   ///< [candidates + 1] of a step for which so many were drafted
  std::vector<double> first;  ///< [requests + 1] of drafting one token for so many
  std::vector<double> round;  ///< [requests + 1] of drafting a further one

  /// Fills first and round, for the first so many drafters together.
  void of_drafting(const CostTable& costs, const DraftQuery& query,
                   std::size_t leading = CostTable::kAllDrafters);
  /// Fills step for up to so many candidates, for each of which `rows` tokens are verified.
  void of_steps(const CostTable& costs, const DraftQuery& query, std::size_t candidates,
                double rows);
};

/// The step that a query asks for, without drafts.
[[nodiscard]] StepShape plain_step(const DraftQuery& query);

/// Candidates across the batch by falling value (TETRIS), and the prefixes of that order that give
/// the highest goodput:
///
///   (requests + sum of values) / (draft seconds + step seconds(rows)).
///
/// Not thread-safe.
class DraftPlanner {
 public:
  /// Lists the candidates of a batch: up to `max_length` for each request, as far as its longest
  /// draft goes. worth: [requests] what a token that would be accepted counts; 0: nothing is
  /// drafted. Tokens of next to no value are left out, but for the first of a request.
  void list(const DraftQuery& query, std::span<const double> worth, int max_length);
  [[nodiscard]] std::span<const DraftCandidate> candidates() const { return candidates_; }

  /// Which prefixes are looked at: all, or all candidates of as many rounds.
  enum class Prefixes : unsigned char { all, whole_rounds };
  /// Of the prefixes of all depths, none of which is empty; no tokens without candidates.
  [[nodiscard]] DraftPlan best(const DraftQuery& query, const DraftPrices& prices,
                               Prefixes prefixes = Prefixes::all) const;
  /// Calls f(candidate) for those of a plan, by falling value.
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
