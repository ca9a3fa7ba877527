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
  /// Returns the seconds left from `now` on; nullopt: unknown, or no response is left. The time is
  /// unknown while `finished` is 0 or below half of `active`, because the first responses to finish
  /// are the shortest and tell little about the others. The rate leaves out the time before the
  /// first token, such as loading.
  [[nodiscard]] std::optional<double> look(double now, const RunSoFar& run);

 private:
  std::optional<double> began_;  ///< `before_` when the first tokens came; nullopt: none came yet
  double before_ = 0;            ///< time of the last look() with 0 tokens
};

}  // namespace paceline::app
