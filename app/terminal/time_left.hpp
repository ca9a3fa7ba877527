// Estimates the time that a run has left from how fast its responses have ended so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace paceline::app {

/// Counts of this start of a run only: responses that earlier starts finished took no time of this
/// start.
struct RunSoFar {
  std::size_t finished = 0;  ///< responses
  std::size_t active = 0;    ///< responses being generated now
  std::size_t left = 0;      ///< unfinished responses: active, waiting or in between
  std::uint64_t tokens = 0;  ///< tokens generated
};

/// Estimates the time left. Used by one thread.
class TimeLeft {
 public:
  /// Seconds left from `now` on; nullopt while the finished responses are fewer than half of the
  /// active ones: the first to end are the shortest, and tell little about the others. Time before
  /// the first token, in which weights are loaded, does not count.
  [[nodiscard]] std::optional<double> look(double now, const RunSoFar& run);

 private:
  std::optional<double> began_;  ///< time of the last look before the first token
  double before_ = 0;
};

}  // namespace paceline::app
