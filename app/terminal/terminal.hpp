// What the program says to its user, on stderr, so that stdout stays free for results, and in the
// log of the run (run_log.hpp) where one is kept.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace paceline::app {

/// Writes the text as it is. A stderr that is closed or full is not worth ending a run for: never
/// fails.
void write_to_user(std::string_view text) noexcept;
/// The same as a signal handler may.
void write_from_handler(std::string_view text) noexcept;
/// On stderr alone: what is drawn over again, as a bar is.
void draw(std::string_view text) noexcept;

/// Columns of the terminal that stderr is; 80 where it does not say.
[[nodiscard]] int terminal_columns();

/// One formatted line.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  write_to_user(fmt::format(format, std::forward<Args>(args)...) + "\n");
}

}  // namespace paceline::app
