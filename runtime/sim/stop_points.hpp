// Draft trees of an EAGLE-3 head as they were recorded (speculation.record_stops): what modelled
// requests are drafted for by heads. RADAR learns and is judged by the same (RADAR, section 2.2,
// "Dataset"): of every tree it is known what the head thought of each level, and how much would
// have been accepted had drafting stopped there.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/sampling.hpp"

namespace paceline::sim {

/// A modelled request goes by the trees of one recorded request, drawn once, so that some requests
/// are harder than others; which of them a draft is depends on where it begins. Immutable, so
/// thread-safe.
class StopPoints {
 public:
  /// Throws std::invalid_argument where there are none.
  explicit StopPoints(std::vector<StopPoint> points);

  /// The tree that is drafted for the request with that noise after `index` tokens of its response.
  [[nodiscard]] const StopPoint& at(const NoiseKey& noise, std::int32_t index) const;
  /// The share of levels whose token was found, of those that the target went on to.
  [[nodiscard]] double acceptance() const;

 private:
  std::vector<StopPoint> points_;    ///< by request
  std::vector<std::size_t> begins_;  ///< [requests + 1] of points_
};

}  // namespace paceline::sim
