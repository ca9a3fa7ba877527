// What the user sees of a run: banner, layout, progress, accounting. Everything goes to stderr, so
// that stdout stays free for results.
#pragma once

#include <span>
#include <string>

#include "app/setup.hpp"
#include "app/wall_clock.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/roles/coordinator.hpp"

namespace paceline::app {

void print_banner(const Setup& setup, int ranks);
/// Nodes, roles, memory, and how each choice was made.
void print_plan(const Setup& setup, const TimeLimit& limit);
/// The plan as stored in telemetry.
[[nodiscard]] std::string plan_text(const Setup& setup);

/// A bar that is redrawn on a terminal; lines elsewhere, at most one each ten seconds.
class ProgressPrinter {
 public:
  ProgressPrinter();
  /// `now` in seconds. Prints when it is time to.
  void update(double now, const roles::Progress& progress);
  /// Ends a redrawn line.
  void end(double now, const roles::Progress& progress);

 private:
  void print(double now, const roles::Progress& progress);

  bool terminal_;
  double last_print_ = 0;
  double last_rate_time_ = 0;
  std::uint64_t last_tokens_ = 0;
  double rate_ = 0;  ///< tokens/s of late
};

/// The table at the end: min / average / max over the ranks of each role.
void print_accounting(std::span<const RankSummary> summaries, double seconds);

}  // namespace paceline::app
