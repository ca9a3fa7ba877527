// Estimates the remaining time of a run from the rate at which its responses have finished.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace paceline::app {

/// Counts since the run was last started or resumed. Earlier responses took none of this time.
struct RunSoFar {
  std::size_t finished = 0;  ///< finished responses
  std::size_t active = 0;    ///< responses being generated now
  std::size_t left = 0;      ///< all unfinished responses of the run
  std::uint64_t tokens = 0;  ///< tokens generated
};

/// Estimates the time left. Used by one thread.
class TimeLeft {
 public:
  /// Returns the seconds left from `now` on; nullopt while `finished` is below half of `active`,
  /// because the first responses to finish are the shortest and tell little about the others. Time
  /// before the first token, such as loading, does not count.
  [[nodiscard]] std::optional<double> look(double now, const RunSoFar& run);

 private:
  std::optional<double> began_;  ///< time of the last look before the first token
  double before_ = 0;            ///< time of the last look at which there were no tokens
};

}  // namespace paceline::app
