#include "runtime/policy/plan/drain.hpp"

#include <algorithm>
#include <cmath>

namespace paceline::policy {
namespace {

/// Share of the requests that are unfinished, on average, until the first half has ended.
constexpr double kFirstHalf = 0.82;
/// Tokens of a request until the next half has ended, in median lengths.
constexpr double kFurtherHalf = 0.6;

}  // namespace

std::vector<DrainPart> drain_of(double requests) {
  if (requests <= 1) return {{1, 1}};
  std::vector<DrainPart> parts{{kFirstHalf * requests, kFirstHalf * requests}};
  for (double left = requests / 2; left > 1; left /= 2) {
    const double mean = std::sqrt(left * std::max(1.0, left / 2));
    parts.push_back({mean, kFurtherHalf * mean});
  }
  parts.push_back({1, kFurtherHalf});
  double tokens = 0;
  for (const DrainPart& part : parts) tokens += part.share;
  for (DrainPart& part : parts) part.share /= tokens;
  return parts;
}

}  // namespace paceline::policy
