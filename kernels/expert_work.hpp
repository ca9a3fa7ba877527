// Layout of the buffers between the products of Operations::experts(), within its `work`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/core/types.hpp"

namespace paceline::kernels {

/// Addend to the sum of sigmoids by which weights are divided: the published models' value.
inline constexpr float kLeastTotal = 1e-20F;

/// Buffers for some rows in `work`, one after the other. A place is one row for one expert.
struct ExpertWork {
  ExpertWork(std::byte* work, int rows, int hidden, int width, int chosen, DType dtype) {
    const auto take = [&](std::size_t of_row) {
      std::byte* const at = work;
      work += rows * whole_lines(of_row);
      return at;
    };
    rows_in = take(size_of(dtype) * chosen * hidden);
    gated = take(size_of(dtype) * chosen * width);
    results = reinterpret_cast<float*>(take(sizeof(float) * chosen * hidden));
    places = reinterpret_cast<std::int32_t*>(take(sizeof(std::int32_t) * chosen));
    rows_of = reinterpret_cast<std::int32_t*>(take(sizeof(std::int32_t) * chosen));
  }
  /// Bytes of all buffers for one row, a multiple of 64.
  [[nodiscard]] static std::size_t row_bytes(int hidden, int width, int chosen, DType dtype) {
    return whole_lines(size_of(dtype) * chosen * hidden) +
           whole_lines(size_of(dtype) * chosen * width) +
           whole_lines(sizeof(float) * chosen * hidden) +
           2 * whole_lines(sizeof(std::int32_t) * chosen);
  }
  [[nodiscard]] static constexpr std::size_t whole_lines(std::size_t bytes) {
    return (bytes + 63) / 64 * 64;
  }

  std::byte* rows_in;     ///< [places, hidden] of the dtype
  std::byte* gated;       ///< [places, width] of the dtype
  float* results;         ///< [places, hidden]
  std::int32_t* places;   ///< [rows, chosen]; not used by the CPU backend
  std::int32_t* rows_of;  ///< [places]; not used by the CPU backend
};

}  // namespace paceline::kernels
