// How long a run will go on, by how fast its responses came to their ends so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace paceline::app {

/// Of this start of a run alone: what earlier ones finished took none of its time.
struct RunSoFar {
  std::size_t finished = 0;  ///< responses
  std::size_t active = 0;    ///< that are generated now
  std::size_t left = 0;      ///< not finished: active, waiting or in between
  std::uint64_t tokens = 0;  ///< generated
};

/// Used by one thread.
class TimeLeft {
 public:
  /// Seconds from `now` on. Nothing while fewer have finished than half as many as are active:
  /// those that end first are the shortest, and say next to nothing of the others. Seconds before
  /// the first token, in which weights were loaded, do not count as generating.
  [[nodiscard]] std::optional<double> look(double now, const RunSoFar& run);

 private:
  std::optional<double> began_;  ///< when the last look before the first token was
  double before_ = 0;
};

}  // namespace paceline::app
