// Durations in messages to users.
#pragma once

#include <string>

namespace paceline {

/// Returns text such as "45s", "3m07s", "2h05m".
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace paceline
