// Basic types of the vocabulary.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace paceline {

using TokenId = std::int32_t;

/// Element types. f16 and f8 are only storage types of weights: packing converts them for
/// computation.
enum class DType : std::uint8_t { f32, bf16, f16, f8 };

[[nodiscard]] constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::f32 ? 4 : dtype == DType::f8 ? 1 : 2;
}
/// Returns the name of `value`. `names`: the names of all enumerators, in order of their values
/// from 0. "unknown": `value` is no enumerator (read from a damaged file, for instance).
template <typename Enum, std::size_t N>
[[nodiscard]] constexpr const char* name_in(const std::array<const char*, N>& names, Enum value) {
  const auto at = static_cast<std::size_t>(value);
  return at < N ? names[at] : "unknown";
}

[[nodiscard]] constexpr const char* name_of(DType dtype) {
  return name_in(std::array{"fp32", "bf16", "fp16", "fp8"}, dtype);
}
/// The default compute type for a stored type: fp32 for fp32, bf16 for all others.
[[nodiscard]] constexpr DType compute_of(DType stored) {
  return stored == DType::f32 ? DType::f32 : DType::bf16;
}

}  // namespace paceline
