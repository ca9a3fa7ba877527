#include "runtime/policy/length/banditspec.hpp"

#include <algorithm>
#include <cmath>

namespace paceline::policy {

int BanditSpec::best() const {
  int steps = 0;
  for (const MeanGoodput& arm : arms_) steps += arm.visits();
  int best = 0;
  double most = 0;
  for (std::size_t length = 0; length < arms_.size(); ++length) {
    const MeanGoodput& arm = arms_[length];
    if (arm.visits() == 0) return static_cast<int>(length);
    const double bound = arm.value() / highest_ + std::sqrt(2 * std::log(steps) / arm.visits());
    if (bound > most) {
      most = bound;
      best = static_cast<int>(length);
    }
  }
  return best;
}

bool BanditSpec::considers(const DraftQuery& query) {
  is_round_ = query.requests > 0 && query.prefill_rows == 0;
  length_ = query.requests > 0 ? best() : 0;
  return length_ > 0;
}

void BanditSpec::choose(const DraftQuery& query, std::span<int> lengths) {
  length_ = draft_alike(query, length_, lengths);
}

void BanditSpec::observe(const StepOutcome& measured) {
  if (!is_round_) return;
  arms_[length_].record(measured);
  highest_ = std::max(highest_, arms_[length_].value());
}

}  // namespace paceline::policy
