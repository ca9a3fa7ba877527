#include "io/config/quantity.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "runtime/core/parse_number.hpp"

namespace paceline::io {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

template <typename T>
std::optional<T> parse_all(std::string_view text) {
  const std::optional<T> value = parse_number<T>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// Takes a number without a sign off the start of `text`.
std::optional<double> take_number(std::string_view& text) {
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return value;
}

// K, M, G and T alone are powers of 1024, as in Slurm.
constexpr std::array<std::pair<std::string_view, std::uint64_t>, 13> size_units{{
    {"B", 1},
    {"KiB", 1ULL << 10},
    {"MiB", 1ULL << 20},
    {"GiB", 1ULL << 30},
    {"TiB", 1ULL << 40},
    {"K", 1ULL << 10},
    {"M", 1ULL << 20},
    {"G", 1ULL << 30},
    {"T", 1ULL << 40},
    {"kB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
}};

// Reads "HH:MM:SS" or "D-HH:MM:SS", as Slurm writes a time limit.
std::optional<double> parse_clock(std::string_view text) {
  std::int64_t days = 0;
  if (const std::size_t dash = text.find('-'); dash != std::string_view::npos) {
    const auto value = parse_number<std::uint16_t>(text.substr(0, dash));
    if (!value) return std::nullopt;
    days = *value;
    text.remove_prefix(dash + 1);
  }
  const std::size_t first = text.find(':');
  const std::size_t last = text.rfind(':');
  if (first == std::string_view::npos || first == last) return std::nullopt;
  const auto hours = parse_number<std::uint16_t>(text.substr(0, first));
  const auto minutes = parse_number<std::uint16_t>(text.substr(first + 1, last - first - 1));
  const auto seconds = parse_number<std::uint16_t>(text.substr(last + 1));
  if (!hours || !minutes || !seconds || *minutes > 59 || *seconds > 59) return std::nullopt;
  return static_cast<double>(((days * 24 + *hours) * 60 + *minutes) * 60 + *seconds);
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return parse_number<std::int64_t>(text);
}
std::optional<std::uint64_t> parse_unsigned(std::string_view text) {
  return parse_number<std::uint64_t>(text);
}
std::optional<float> parse_float(std::string_view text) { return parse_all<float>(text); }
std::optional<double> parse_double(std::string_view text) { return parse_all<double>(text); }

std::optional<std::uint64_t> parse_size(std::string_view text) {
  constexpr std::uint64_t limit = 1ULL << 62;
  if (const auto bytes = parse_unsigned(text)) {
    return *bytes <= limit ? bytes : std::nullopt;
  }
  const auto number = take_number(text);
  if (!number) return std::nullopt;
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  if (text.empty()) {
    if (*number > static_cast<double>(limit) || *number != std::floor(*number)) return std::nullopt;
    return static_cast<std::uint64_t>(*number);
  }
  for (const auto& [unit, bytes] : size_units) {
    if (text != unit) continue;
    const double product = std::round(*number * static_cast<double>(bytes));
    if (!(product <= static_cast<double>(limit))) return std::nullopt;
    return static_cast<std::uint64_t>(product);
  }
  return std::nullopt;
}

std::optional<double> parse_duration(std::string_view text) {
  if (text.find(':') != std::string_view::npos) return parse_clock(text);
  // Units in falling order, each once: "1d2h3m4s". A number alone is in seconds.
  constexpr std::array<std::pair<char, double>, 4> units{
      {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}}};
  std::size_t next_unit = 0;
  double total = 0;
  std::string_view rest = text;
  do {
    const auto number = take_number(rest);
    if (!number) return std::nullopt;
    if (rest.empty() && next_unit == 0) return number;
    while (next_unit < units.size() && (rest.empty() || units[next_unit].first != rest.front())) {
      ++next_unit;
    }
    if (next_unit == units.size()) return std::nullopt;
    total += *number * units[next_unit++].second;
    rest.remove_prefix(1);
  } while (!rest.empty());
  return std::isfinite(total) ? std::optional(total) : std::nullopt;
}

std::string format_number(float value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}
std::string format_number(double value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

}  // namespace paceline::io
