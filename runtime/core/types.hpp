// Basic types of the vocabulary.
#pragma once

#include <cstdint>

namespace paceline {

using TokenId = std::int32_t;

/// Element types. f16 is a storage type of weights alone: packing converts it for computation.
enum class DType : std::uint8_t { f32, bf16, f16 };

[[nodiscard]] constexpr std::size_t size_of(DType dtype) { return dtype == DType::f32 ? 4 : 2; }
[[nodiscard]] constexpr const char* name_of(DType dtype) {
  return dtype == DType::f32 ? "fp32" : dtype == DType::bf16 ? "bf16" : "fp16";
}
/// The default compute type of a stored type: one of as many bytes.
[[nodiscard]] constexpr DType compute_of(DType stored) {
  return stored == DType::f32 ? DType::f32 : DType::bf16;
}

}  // namespace paceline
