// Foreign text made fit for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace paceline::io {

/// The text without characters that a terminal obeys. Control characters (C0, DEL, C1) and
/// characters that change the direction of writing become escapes as in a string: \n, \t, \x1b or
/// \u202e. Invalid UTF-8 becomes U+FFFD. With `lines`, line feeds and tabs stay. Thread-safe.
[[nodiscard]] std::string printable(std::string_view text, bool lines = false);

/// printable() on one line, cut to this number of characters including "...".
[[nodiscard]] std::string printable_start(std::string_view text, std::size_t characters);

}  // namespace paceline::io
