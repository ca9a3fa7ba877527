// Durations in messages to people.
#pragma once

#include <string>

namespace paceline {

/// "45s", "3m07s", "2h05m".
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace paceline
