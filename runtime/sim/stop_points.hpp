// Recorded draft trees of an EAGLE-3 head (record_stops), from which heads draft for
// modelled requests. RADAR learns and is judged by the same (RADAR, section 2.2, "Dataset"): a tree
// has the head's scores of each level, and the tokens that would have been accepted had drafting
// stopped there.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/sampling.hpp"

namespace paceline::sim {

/// Trees for modelled requests. A request has the trees of one recorded request, drawn once, so
/// that some requests are harder than others; a draft has one of them by the position where it
/// begins. Immutable, so thread-safe.
class StopPoints {
 public:
  /// Throws std::invalid_argument where there are no points.
  explicit StopPoints(std::vector<StopPoint> points);

  /// The tree of a draft for the request with that noise, after `index` tokens of its response.
  [[nodiscard]] const StopPoint& at(const NoiseKey& noise, std::int32_t index) const;
  /// The share of levels whose token was found, among levels that the target went on to.
  [[nodiscard]] double acceptance() const;

 private:
  std::vector<StopPoint> points_;    ///< by request
  std::vector<std::size_t> begins_;  ///< [requests + 1] first of each in points_
};

}  // namespace paceline::sim
