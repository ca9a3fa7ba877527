// Distribution of known work over workers, so that all of it is done as early as possible.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline::policy {

/// Longest processing time first (Graham's LPT rule): takes pieces by falling work, and gives each
/// to the worker that would finish it first. Where all workers are alike, the last one ends within
/// 4/3 of the shortest possible time. `work`: [pieces] in any unit. `speeds`: [workers], at least
/// one; relative speeds, each > 0. Returns [pieces]: the worker's index. Deterministic.
[[nodiscard]] std::vector<int> deal(std::span<const std::int64_t> work,
                                    std::span<const int> speeds);

}  // namespace paceline::policy
