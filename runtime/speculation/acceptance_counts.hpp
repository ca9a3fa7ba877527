// Counts of verified and of accepted draft tokens, by the conditions that may explain acceptance.
#pragma once

#include <bit>
#include <map>
#include <tuple>
#include <vector>

#include "runtime/core/interfaces.hpp"

namespace paceline::speculation {

class AcceptanceCounts {
 public:
  /// Counts a verified token at `position` of a draft (1: right after the committed text). `batch`:
  /// decoding requests of the step. `response`: response tokens that the request had.
  void add(int drafter, int position, std::uint32_t batch, std::uint32_t response, bool accepted) {
    Count& count = counts_[{drafter, position, std::bit_floor(batch), std::bit_floor(response)}];
    ++count.drafted;
    count.accepted += accepted ? 1 : 0;
  }
  /// The counts, ordered by drafter, position, batch and response (AcceptanceCell::progress).
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
