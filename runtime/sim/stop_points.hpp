// Recorded draft trees of an EAGLE-3 head (record_stops), from which modelled heads draft. RADAR is
// trained and evaluated on the same data (RADAR, section 2.2, "Dataset"): a tree has the head's
// scores of each level, and the number of tokens that would have been accepted if drafting had
// stopped there.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/sampling.hpp"

namespace paceline::sim {

/// Trees for modelled requests. A request gets the trees of one recorded request, drawn once, so
/// that some requests are harder than others. A draft gets one of these trees, drawn by the
/// position where it begins. Immutable, so thread-safe.
class StopPoints {
 public:
  /// Throws std::invalid_argument where there are no points.
  explicit StopPoints(std::vector<StopPoint> points);

  /// The tree of a draft for the request with this noise, after `index` tokens of its response.
  [[nodiscard]] const StopPoint& at(const NoiseKey& noise, std::int32_t index) const;
  /// The share of accepted levels, among the levels that were tried with all levels before them
  /// accepted.
  [[nodiscard]] double acceptance() const;

 private:
  std::vector<StopPoint> points_;    ///< sorted by request
  std::vector<std::size_t> begins_;  ///< [requests + 1] index in points_ of each one's first
};

}  // namespace paceline::sim
