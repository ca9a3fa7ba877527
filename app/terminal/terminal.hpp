// Text for the user. It goes to stderr, because stdout is for results, and to the run's log
// (run_log.hpp) if there is one.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace paceline::app {

/// Writes the text unchanged. Ignores errors, such as a closed stderr, which must not end a run.
void write_to_user(std::string_view text) noexcept;
/// Like write_to_user(), but safe in a signal handler. Skips the log if its file is not open yet.
void write_from_handler(std::string_view text) noexcept;
/// Writes the text to stderr but not to the log, for example a bar that is redrawn.
void draw(std::string_view text) noexcept;

/// Number of columns of stderr's terminal; 80 if it is not known.
[[nodiscard]] int terminal_columns();

/// Writes one formatted line.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  write_to_user(fmt::format(format, std::forward<Args>(args)...) + "\n");
}

}  // namespace paceline::app
