// Distribution of known work over workers, so that all of it is done as early as may be.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline::policy {

/// Longest processing time first: pieces by falling work, each to the worker that would finish it
/// first (Graham's LPT rule: the last one ends within 4/3 of the shortest time where workers are
/// alike). `work`: [pieces] in any unit; `speeds`: [workers] (>= 1) units a second or in
/// proportion, each > 0. Returns [pieces]: the worker's index. Equal input, equal outcome.
[[nodiscard]] std::vector<int> deal(std::span<const std::int64_t> work,
                                    std::span<const int> speeds);

}  // namespace paceline::policy
