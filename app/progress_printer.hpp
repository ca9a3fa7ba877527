// How far a run is, on stderr.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/roles/coordinator.hpp"

namespace paceline::app {

/// A bar that is redrawn on a terminal; elsewhere, as under a launcher, lines after 0, 1, 2, 5 and
/// 10 seconds and then every ten. The counts of a line add up to the total. Used by one thread.
class ProgressPrinter {
 public:
  ProgressPrinter();
  /// `now` in seconds. Prints when it is time to.
  void update(double now, const roles::Progress& progress);
  /// A line of its own, before the next of progress: the run is stopping.
  void stopping(const std::string& why);
  /// Prints where it ended.
  void end(double now, const roles::Progress& progress);

 private:
  void print(double now, const roles::Progress& progress);

  bool terminal_;
  bool stopping_ = false;
  double next_print_ = 0;
  double last_rate_time_ = 0;
  std::uint64_t last_tokens_ = 0;
  double rate_ = 0;  ///< tokens/s of late
};

}  // namespace paceline::app
