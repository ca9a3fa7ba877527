// How many requests of a run are unfinished over time. Few of them are left for most of the time.
#pragma once

#include <vector>

namespace paceline::policy {

/// A part of a run.
struct DrainPart {
  double requests = 1;  ///< unfinished requests, on average
  double share = 1;     ///< share of the run's response tokens that is generated in this part
  double reached = 0;   ///< mean length of its responses so far / length of the longest response
};

/// The parts of a run: the first lasts until half of the requests have ended, the next until half
/// of the rest have, and so on; the last part is the last request. The shares add up to 1.
///
/// Response lengths are assumed to be lognormal with a deviation of 0.65 of their logarithm, like
/// SpecActor's (tests/bench/README.md: median 1,750, p99 7,940). The first half ends within one
/// median length, and each further half in about 0.6 of it: 0.55 the second, 0.69 the sixth. So
/// further parts last about equally long, however many requests they begin with. The median does
/// not matter. `requests`: number at the start, at least 1.
[[nodiscard]] std::vector<DrainPart> drain_of(double requests);

}  // namespace paceline::policy
