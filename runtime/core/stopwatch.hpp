// Seconds of a scope, added up.
#pragma once

#include <chrono>

namespace paceline {

/// Adds the seconds of its own lifetime to a sum, by the machine's clock: only for code that no
/// simulation runs. Reads the clock twice, which takes some 50 ns.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace paceline
