// The ways in which the ranks of a verifier group share attention.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/core/types.hpp"

namespace paceline {

enum class AttentionLayout : std::uint8_t {
  tensor,  ///< each rank has some heads of every request
  data,    ///< each rank has all heads of its own requests
};
[[nodiscard]] constexpr const char* name_of(AttentionLayout layout) {
  return name_in(std::array{"tensor", "data"}, layout);
}

}  // namespace paceline
