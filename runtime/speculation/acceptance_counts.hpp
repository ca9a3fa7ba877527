// How many draft tokens were verified and accepted, by all that may explain their acceptance.
#pragma once

#include <bit>
#include <map>
#include <tuple>
#include <vector>

#include "runtime/core/interfaces.hpp"

namespace paceline::speculation {

class AcceptanceCounts {
 public:
  /// A token at `position` (1: after the last committed one) of a draft was verified. `batch`:
  /// decoding requests of the step; `response`: tokens the request had.
  void add(int drafter, int position, std::uint32_t batch, std::uint32_t response, bool accepted) {
    Count& count = counts_[{drafter, position, std::bit_floor(batch), std::bit_floor(response)}];
    ++count.drafted;
    count.accepted += accepted ? 1 : 0;
  }
  /// The counts, ordered by drafter, position, batch and progress.
  [[nodiscard]] std::vector<AcceptanceCell> cells() const {
    std::vector<AcceptanceCell> cells;
    for (const auto& [key, count] : counts_) {
      const auto& [drafter, position, batch, progress] = key;
      cells.push_back({static_cast<std::uint32_t>(drafter), static_cast<std::uint32_t>(position),
                       batch, progress, count.drafted, count.accepted});
    }
    return cells;
  }

 private:
  struct Count {
    std::uint64_t drafted = 0;
    std::uint64_t accepted = 0;
  };
  std::map<std::tuple<int, int, std::uint32_t, std::uint32_t>, Count> counts_;
};

}  // namespace paceline::speculation
