// The log of a run, DIR/paceline.log: what its user is told, kept for whoever looks at its output
// later. Readers of a run take no notice of it.
//
// Whatever is said with one call (terminal.hpp) is appended with one write, so that ranks do not
// mix their lines, and a run that is killed leaves whole ones. Each attempt appends its own:
//
//   == start 2 of this run, 2026-01-31 18:04:12 UTC, 4 ranks
//   ...
//   == ended 2026-01-31 18:05:43 UTC           missing where the attempt was killed
#pragma once

#include <string>
#include <string_view>

namespace paceline::app {

inline constexpr const char* kRunLogName = "paceline.log";

/// Keeps what this process says from its beginning to its end, one at a time. A log that cannot be
/// written ends nothing: its text is lost. Made, opened and ended by one thread; any may say
/// something.
class RunLog {
 public:
  /// What is said before the log is opened waits in memory.
  RunLog();
  /// Says when it ended, if open().
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Of the rank that speaks for all: appends `heading`, as the first line above, and what was
  /// said. Why it cannot be; empty: it can.
  [[nodiscard]] std::string open(const std::string& directory, const std::string& heading);
  /// Of the others: it is opened when they say something.
  void join(const std::string& directory);

 private:
  bool leads_ = false;
};

/// Where a log is kept, the text goes there. Never fails.
void keep_in_log(std::string_view text) noexcept;
/// The same as a signal handler may: where the log is open.
void keep_in_open_log(std::string_view text) noexcept;

/// "2026-01-31 18:04:12 UTC".
[[nodiscard]] std::string now_text();

}  // namespace paceline::app
