// Text for the user. It goes to stderr, for stdout is for results, and to the log of the run
// (run_log.hpp) if one is kept.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace paceline::app {

/// Writes the text unchanged. Never fails, for a closed or full stderr is no reason to end a run.
void write_to_user(std::string_view text) noexcept;
/// Writes the text; safe in a signal handler.
void write_from_handler(std::string_view text) noexcept;
/// Writes text only on stderr and not in the log, as a bar that is redrawn.
void draw(std::string_view text) noexcept;

/// Number of columns of stderr's terminal; 80 if it is not known.
[[nodiscard]] int terminal_columns();

/// Writes one formatted line.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  write_to_user(fmt::format(format, std::forward<Args>(args)...) + "\n");
}

}  // namespace paceline::app
