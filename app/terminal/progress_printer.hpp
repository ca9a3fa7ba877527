// Progress of a run, on stderr.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/terminal/time_left.hpp"
#include "runtime/roles/coordinator.hpp"

namespace paceline::app {

/// Shows progress. If stderr is a terminal, redraws a bar there. If not, for example under a
/// launcher, prints a line after 0, 1, 2, 5 and 10 seconds, and then every ten seconds. The run's
/// log gets these lines in both cases. Used by one thread.
class ProgressPrinter {
 public:
  ProgressPrinter();
  /// Prints progress if a line or a redraw is due. `now`: seconds since the start or resume.
  void update(double now, const roles::Progress& progress);
  /// Prints at once, on a line of its own, that the run is stopping, and `why`.
  void stopping(const std::string& why);
  /// Prints the final progress.
  void end(double now, const roles::Progress& progress);

 private:
  [[nodiscard]] std::vector<std::string> parts(double now, const roles::Progress& progress);
  void draw_bar(const roles::Progress& progress, std::vector<std::string> parts) const;
  void add_line(const std::vector<std::string>& parts) const;

  bool terminal_;
  bool stopping_ = false;
  double next_draw_ = 0;  ///< on a terminal: time at which the next redraw of the bar is due
  double next_line_ = 0;  ///< time at which the next line is due
  double last_rate_time_ = 0;
  std::uint64_t last_tokens_ = 0;
  double rate_ = 0;  ///< recent tokens/s
  TimeLeft time_left_;
  std::optional<double> left_;  ///< seconds left, as estimated at the last update
};

}  // namespace paceline::app
