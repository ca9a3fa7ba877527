// Estimates the time that a run has left from how fast its responses have ended so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace paceline::app {

/// Counts of the present attempt only, because earlier responses took none of its time.
struct RunSoFar {
  std::size_t finished = 0;  ///< responses
  std::size_t active = 0;    ///< responses being generated now
  std::size_t left = 0;      ///< unfinished responses: active, waiting or in between
  std::uint64_t tokens = 0;  ///< tokens generated
};

/// Estimates the time left. Used by one thread.
class TimeLeft {
 public:
  /// Returns the seconds left from `now` on. Returns nullopt while there are fewer than half as
  /// many finished responses as active ones, because the first to finish are the shortest and tell
  /// little about the others. Time before the first token, when weights are loaded, does not count.
  [[nodiscard]] std::optional<double> look(double now, const RunSoFar& run);

 private:
  std::optional<double> began_;  ///< time of the last look before the first token
  double before_ = 0;
};

}  // namespace paceline::app
