// Time of a run, real or simulated.
#pragma once

namespace paceline {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Seconds since the run began. Thread-safe.
  [[nodiscard]] virtual double now() const = 0;
};

}  // namespace paceline
