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
  if (requests <= 1) return {{1, 1, 0.5}};
  std::vector<DrainPart> parts{{kFirstHalf * requests, kFirstHalf * requests, 0.5}};
  double longest = 1;  // in median lengths; so is DrainPart::reached until the end
  const auto add = [&](double mean) {
    parts.push_back({mean, kFurtherHalf * mean, longest + kFurtherHalf / 2});
    longest += kFurtherHalf;
  };
  for (double left = requests / 2; left > 1; left /= 2) {
    add(std::sqrt(left * std::max(1.0, left / 2)));
  }
  add(1);
  double tokens = 0;
  for (const DrainPart& part : parts) tokens += part.share;
  for (DrainPart& part : parts) {
    part.share /= tokens;
    part.reached /= longest;
  }
  return parts;
}

}  // namespace paceline::policy
