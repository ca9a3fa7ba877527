// Numbers as people write them in a configuration: sizes, durations, and numbers back to text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::io {

/// A whole decimal number, "-12"; nothing else. nullopt when it is not one or does not fit.
[[nodiscard]] std::optional<std::int64_t> parse_integer(std::string_view text);
[[nodiscard]] std::optional<std::uint64_t> parse_unsigned(std::string_view text);

/// A finite decimal number, "0.5" or "1e-3". nullopt when it is not one, or when it is too large or
/// too small for the type.
[[nodiscard]] std::optional<float> parse_float(std::string_view text);
[[nodiscard]] std::optional<double> parse_double(std::string_view text);

/// Bytes: "2GiB", "512 MiB", "8G", "1.5e9", "1.5GB". Units B, KiB, MiB, GiB, TiB or, as Slurm has
/// them, K, M, G, T (powers of 1024), and kB, MB, GB, TB (powers of 1000). A fraction of a byte is
/// rounded when there is a unit and an error when there is none. nullopt when it is not a size or
/// exceeds 2^62.
[[nodiscard]] std::optional<std::uint64_t> parse_size(std::string_view text);

/// Seconds: "90", "0.5", "90s", "30m", "2h", "1d", "1h30m", "HH:MM:SS", "D-HH:MM:SS". nullopt when
/// it is not a duration.
[[nodiscard]] std::optional<double> parse_duration(std::string_view text);

/// The shortest text that reads back to the same value.
[[nodiscard]] std::string format_number(float value);
[[nodiscard]] std::string format_number(double value);

}  // namespace paceline::io
