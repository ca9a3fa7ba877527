// Counts with their nouns, "1 rank", "8 ranks", and durations in messages to users.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace paceline {

/// Returns "N nouns". `one`: the singular. `many`: the plural; empty: `one` with an s.
template <std::integral Count>
[[nodiscard]] std::string counted(Count count, std::string_view one, std::string_view many = "") {
  std::string text = std::to_string(count) + " ";
  if (count == 1) return text.append(one);
  return many.empty() ? text.append(one) + "s" : text.append(many);
}

/// Returns text such as "45s", "3m07s", "2h05m".
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace paceline
