// Text for the user, on stderr, so that stdout stays free for results, and in the log of the run
// (run_log.hpp) where one is kept.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace paceline::app {

/// Writes the text as it is. Never fails, for a closed or full stderr is not worth ending a run.
void write_to_user(std::string_view text) noexcept;
/// Writes the text; safe in a signal handler.
void write_from_handler(std::string_view text) noexcept;
/// Writes text that is not to be logged, as a bar that is redrawn, on stderr alone.
void draw(std::string_view text) noexcept;

/// Columns of stderr's terminal; 80 where they are not known.
[[nodiscard]] int terminal_columns();

/// Writes one formatted line.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  write_to_user(fmt::format(format, std::forward<Args>(args)...) + "\n");
}

}  // namespace paceline::app
