#include "runtime/policy/length/outcomes.hpp"

#include <algorithm>

namespace paceline::policy {
std::size_t outcomes_that_pay(const CostCurve& calls, const SureDrafts& sure,
                              std::span<const double> chances) {
  if (calls.empty()) return 0;
  const auto rate = [&](double tokens, double further) {
    const double rows = sure.rows + further;
    if (rows == 0) return 0.0;
    const double seconds = calls.seconds(rows, sure.context);
    const double delayed = sure.rows > 0 ? 0 : std::min(1.0, seconds * sure.answers) / 2;
    return (tokens - delayed) / seconds;
  };
  double tokens = sure.tokens;
  double best = rate(tokens, 0);
  std::size_t count = 0;
  for (std::size_t i = 0; i < chances.size() && chances[i] >= kLeastChance; ++i) {
    tokens += chances[i];
    const double now = rate(tokens, static_cast<double>(i + 1));
    if (now <= best) continue;
    best = now;
    count = i + 1;
  }
  return count;
}

}  // namespace paceline::policy
