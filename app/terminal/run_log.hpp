// The log of a run, DIR/paceline.log. It keeps the messages to the user for later readers. Programs
// that read a run ignore the log.
//
// Each message is appended with one write, so that ranks do not mix their lines, and a killed run
// leaves whole lines. A full disk can cut the last line; the next attempt then begins a new line.
// Each attempt (a start or resume of the run) appends a part of its own:
//
//   == start 2 of this run, 2026-01-31 18:04:12 UTC, 4 ranks
//   ...
//   == ended 2026-01-31 18:05:43 UTC           missing if the attempt was killed or aborted
#pragma once

#include <string>
#include <string_view>

namespace paceline::app {

inline constexpr const char* kRunLogName = "paceline.log";

/// A process's access to the log of its run. A process has at most one RunLog at a time. While the
/// RunLog exists, texts that terminal.hpp writes to the user, except by draw(), also go to
/// paceline.log. If the file cannot be written, the texts are lost and the run goes on. One thread
/// makes, opens and destroys the RunLog. Any thread may write messages.
class RunLog {
 public:
  /// Keeps text in memory until the log is opened.
  RunLog();
  /// Closes the file. If open() has succeeded, first writes the line "== ended ...".
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// For rank 0: opens the file, and appends `heading` (an example is at the top of this file) and
  /// the text kept so far. If the file cannot be opened, returns the reason, else "".
  [[nodiscard]] std::string open(const std::string& directory, const std::string& heading);
  /// For every other rank: names the file, which is opened as soon as this rank has text for it.
  void join(const std::string& directory);

 private:
  bool leads_ = false;
};

/// Adds the text to the log, if a RunLog exists. Ignores errors.
void keep_in_log(std::string_view text) noexcept;
/// Adds the text to the log, if its file is open; safe in a signal handler.
void keep_in_open_log(std::string_view text) noexcept;

/// The time now, e.g. "2026-01-31 18:04:12 UTC".
[[nodiscard]] std::string now_text();

}  // namespace paceline::app
