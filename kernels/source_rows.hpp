// The rows that a packed matrix is stacked from, for whatever backend packs them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels {

/// Where a row of the stacked matrix is stored.
struct SourceRow {
  const std::byte* data = nullptr;  ///< [k], not necessarily aligned
  DType dtype = DType::f32;
};

/// [n], in the order of the slices. Throws Error (internal) when there are none, when one lies
/// outside its matrix or is of another width, and when `bias` is neither empty nor [n].
[[nodiscard]] std::vector<SourceRow> source_rows(std::span<const MatrixSlice> slices,
                                                 std::span<const float> bias);
[[noreturn]] void fail_to_pack(const std::string& what);

}  // namespace paceline::kernels
