// Settings that may be left to the program.
#pragma once

#include <optional>

namespace paceline {

/// A value that may be left to the program; absent: `auto`.
template <typename T>
using Auto = std::optional<T>;

}  // namespace paceline
