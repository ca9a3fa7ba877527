// The smallest words of the vocabulary.
#pragma once

#include <cstdint>

namespace paceline {

using TokenId = std::int32_t;

enum class DType : std::uint8_t { f32, bf16 };

[[nodiscard]] constexpr std::size_t size_of(DType dtype) { return dtype == DType::f32 ? 4 : 2; }
[[nodiscard]] constexpr const char* name_of(DType dtype) {
  return dtype == DType::f32 ? "fp32" : "bf16";
}

}  // namespace paceline
