// The log of a run, DIR/paceline.log. It keeps the messages to the user for later readers. Programs
// that read a run ignore it.
//
// Each call of terminal.hpp appends its text with one write, so that ranks do not mix their lines,
// and a killed run leaves whole lines. Each attempt appends a part of its own:
//
//   == start 2 of this run, 2026-01-31 18:04:12 UTC, 4 ranks
//   ...
//   == ended 2026-01-31 18:05:43 UTC           missing if the attempt was killed
#pragma once

#include <string>
#include <string_view>

namespace paceline::app {

inline constexpr const char* kRunLogName = "paceline.log";

/// Logs the messages of this process to the user, from construction to destruction. There is one
/// log at a time. If the log cannot be written, its text is lost and the run goes on. One thread
/// makes, opens and ends the log, and any thread may write messages.
class RunLog {
 public:
  /// Keeps text in memory until the log is opened.
  RunLog();
  /// Writes the time of the end, if this rank called open().
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// Opens the log on the rank that speaks for all. Appends `heading` (an example is at the top of
  /// this file) and the text so far. Returns the reason if the log cannot be opened, else "".
  [[nodiscard]] std::string open(const std::string& directory, const std::string& heading);
  /// Call on each other rank, which then opens the file when it first has text for the log.
  void join(const std::string& directory);

 private:
  bool leads_ = false;
};

/// Adds the text to the log, if one is kept. Never fails.
void keep_in_log(std::string_view text) noexcept;
/// Adds the text to an open log; safe in a signal handler.
void keep_in_open_log(std::string_view text) noexcept;

/// The time now, e.g. "2026-01-31 18:04:12 UTC".
[[nodiscard]] std::string now_text();

}  // namespace paceline::app
