// Numbers as people write them in a configuration: sizes, durations, and numbers back to text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::io {

/// Reads a whole decimal number, as "-12". nullopt: it is something else, or does not fit.
[[nodiscard]] std::optional<std::int64_t> parse_integer(std::string_view text);
[[nodiscard]] std::optional<std::uint64_t> parse_unsigned(std::string_view text);

/// Reads a finite decimal number, as "0.5" or "1e-3". nullopt: it is something else, or too large
/// or too small for the type.
[[nodiscard]] std::optional<float> parse_float(std::string_view text);
[[nodiscard]] std::optional<double> parse_double(std::string_view text);

/// Reads bytes: "2GiB", "512 MiB", "8G", "1.5e9", "1.5GB". Units: B, KiB, MiB, GiB, TiB; as in
/// Slurm, K, M, G, T (powers of 1024); kB, MB, GB, TB (powers of 1000). With a unit, a fraction of
/// a byte is rounded; without a unit it is an error. nullopt: it is not a size, or exceeds 2^62.
[[nodiscard]] std::optional<std::uint64_t> parse_size(std::string_view text);

/// Reads seconds: "90", "0.5", "90s", "30m", "2h", "1d", "1h30m", "HH:MM:SS", "D-HH:MM:SS".
/// nullopt: it is not a duration.
[[nodiscard]] std::optional<double> parse_duration(std::string_view text);

/// The shortest text that reads back to the same value.
[[nodiscard]] std::string format_number(float value);
[[nodiscard]] std::string format_number(double value);

}  // namespace paceline::io
