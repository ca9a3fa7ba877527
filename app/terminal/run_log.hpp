// The log of a run, DIR/paceline.log: keeps the text told to the user, for whoever looks at the
// output later. Programs that read a run ignore it.
//
// The text of one call (terminal.hpp) is appended with one write, so that ranks do not mix their
// lines, and a killed run leaves whole lines. Each attempt appends a part of its own:
//
//   == start 2 of this run, 2026-01-31 18:04:12 UTC, 4 ranks
//   ...
//   == ended 2026-01-31 18:05:43 UTC           missing where the attempt was killed
#pragma once

#include <string>
#include <string_view>

namespace paceline::app {

inline constexpr const char* kRunLogName = "paceline.log";

/// Logs the text that this process tells the user, from construction to destruction; one log at a
/// time. A log that cannot be written only loses its text. Made, opened and ended by one thread;
/// any thread may tell the user something.
class RunLog {
 public:
  /// Keeps text in memory until the log is opened.
  RunLog();
  /// Writes the time of the end, if this rank called open().
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Opens the log on the rank that speaks for all: appends `heading`, as the first line above, and
  /// the text so far. Returns why it cannot be opened, or nothing.
  [[nodiscard]] std::string open(const std::string& directory, const std::string& heading);
  /// Joins the log on other ranks, which open it when they have something to tell.
  void join(const std::string& directory);

 private:
  bool leads_ = false;
};

/// Adds the text to the log, where one is kept. Never fails.
void keep_in_log(std::string_view text) noexcept;
/// Adds the text to an open log; safe in a signal handler.
void keep_in_open_log(std::string_view text) noexcept;

/// The time now, as "2026-01-31 18:04:12 UTC".
[[nodiscard]] std::string now_text();

}  // namespace paceline::app
