// The requests of a run over its whole length. Most of a run's seconds pass with few of them left.
#pragma once

#include <vector>

namespace paceline::policy {

/// A part of a run.
struct DrainPart {
  double requests = 1;  ///< unfinished requests, on average
  double share = 1;     ///< share of the run's response tokens that is generated in this part
  double reached = 0;   ///< mean tokens of its responses so far, divided by the longest response's
};

/// The parts of a run: until half of its requests have ended, then until half of the rest have, and
/// so on, then the last request alone. The shares add up to 1.
///
/// Lengths are taken to be lognormal with a deviation of 0.65 of their logarithm, as SpecActor's
/// are (tests/bench/README.md: median 1,750, p99 7,940). The first half ends within one median
/// length, and each further half in about 0.6 of it: 0.55 the second, 0.69 the sixth. So parts last
/// about as long as one another, however many requests they begin with. The lengths themselves do
/// not count. `requests`: at the start, at least 1.
[[nodiscard]] std::vector<DrainPart> drain_of(double requests);

}  // namespace paceline::policy
