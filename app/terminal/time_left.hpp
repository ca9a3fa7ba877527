// Estimates the remaining time of a run from the rate at which its responses have finished.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace paceline::app {

/// Progress of a run. Responses that finished before the last resume do not count.
struct RunSoFar {
  std::size_t finished = 0;  ///< responses finished since the start or resume
  std::size_t active = 0;    ///< responses being generated now
  std::size_t left = 0;      ///< all unfinished responses of the run
  std::uint64_t tokens = 0;  ///< tokens generated since the start or resume
};

/// Estimates the time left in a run. Used by one thread.
class TimeLeft {
 public:
  /// Returns the seconds left from `now` on; nullopt: unknown. The time is unknown while `finished`
  /// is below half of `active`, because the first responses to finish are the shortest and tell
  /// little about the others. Time before the first token, such as loading, does not count.
  [[nodiscard]] std::optional<double> look(double now, const RunSoFar& run);

 private:
  std::optional<double> began_;  ///< start of generation: before_ at the first look() with tokens
  double before_ = 0;            ///< time of the last look() at which there were no tokens
};

}  // namespace paceline::app
