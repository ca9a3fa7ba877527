// Who does what of work that is known beforehand, so that all are done as early as may be.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline::policy {

/// Longest first, each piece to the worker that would be done with it first (Graham's LPT rule: the
/// last is done after 4/3 of the shortest time there is at most, where workers are alike). `work`:
/// [pieces] in any unit; `speeds`: [workers] (>= 1) units in a while, each > 0. Returns [pieces]:
/// the worker's index. Equal input, equal outcome.
[[nodiscard]] std::vector<int> deal(std::span<const std::int64_t> work,
                                    std::span<const int> speeds);

}  // namespace paceline::policy
