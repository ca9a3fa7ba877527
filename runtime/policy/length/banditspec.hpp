// Draft lengths by a bandit that does not know the batch: BanditSpec, a baseline of Nightjar's
// (section 6.1).
#pragma once

#include <span>
#include <vector>

#include "runtime/policy/length/draft_length.hpp"

namespace paceline::policy {

/// The upper confidence bound over the lengths 0 to `max_length`, one for all requests of a step:
/// each arm once, then always the one of the highest
///
///   goodput / highest goodput seen + sqrt(2 ln(steps) / visits),
///
/// UCB1 with rewards scaled into [0, 1]. Goodput is as Nightjar measures it, but of all batch sizes
/// together. Steps that compute prompt rows too play the same arm, and are not learned from.
/// Nightjar describes it in two sentences and names a "variant" of the bound; the plain one is
/// taken. Length 0 is an arm as everywhere here, so that policies differ by how they choose alone.
class BanditSpec final : public DraftLengthPolicy {
 public:
  explicit BanditSpec(int max_length) : arms_(max_length + 1) {}

  bool considers(const DraftQuery& query) override;
  void choose(const DraftQuery& query, std::span<int> lengths) override;
  void observe(const StepOutcome& measured) override;

 private:
  [[nodiscard]] int best() const;

  std::vector<MeanGoodput> arms_;  ///< [max_length + 1]
  double highest_ = 0;             ///< mean goodput seen of an arm, tokens a second
  int length_ = 0;                 ///< of the step under way
  bool is_round_ = false;
};

}  // namespace paceline::policy
