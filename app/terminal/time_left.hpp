// Estimates the time that a run has left from how fast its responses have ended so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace paceline::app {

/// Counts of the present attempt only. Responses of earlier attempts took none of its time.
struct RunSoFar {
  std::size_t finished = 0;  ///< responses
  std::size_t active = 0;    ///< responses being generated now
  std::size_t left = 0;      ///< unfinished responses: active, waiting or in between
  std::uint64_t tokens = 0;  ///< tokens generated
};

/// Estimates the time left. Used by one thread.
class TimeLeft {
 public:
  /// Returns the seconds left from `now` on. Returns nullopt until the number of finished
  /// responses is half the number of active ones, because the first to finish are the shortest and
  /// tell little about the others. Time before the first token, such as loading, does not count.
  [[nodiscard]] std::optional<double> look(double now, const RunSoFar& run);

 private:
  std::optional<double> began_;  ///< `before_` when the first token was seen
  double before_ = 0;            ///< time of the last look that saw no tokens
};

}  // namespace paceline::app
