// Source rows of a packed matrix, for any backend that packs them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels {

/// A row of the stacked matrix, as stored.
struct SourceRow {
  const std::byte* data = nullptr;  ///< [k], not necessarily aligned
  DType dtype = DType::f32;
  // Of f8:
  const std::byte* scales = nullptr;  ///< of the matrix's blocks that the row cuts
  DType scale_dtype = DType::f32;     ///< f32 or bf16
  std::int64_t first_column = 0;      ///< data[0]'s in the matrix
};

/// The slice's row.
[[nodiscard]] SourceRow source_row(const MatrixSlice& slice, std::int64_t row);
/// Writes the k weights that the row's elements stand for.
void to_floats(const SourceRow& row, std::int64_t k, float* out);

/// Source rows [n], in the order of the slices. Throws Error (internal) when there are none, when
/// one lies outside its matrix or is of another width, and when `bias` is neither empty nor [n].
[[nodiscard]] std::vector<SourceRow> source_rows(std::span<const MatrixSlice> slices,
                                                 std::span<const float> bias);

/// The type in which tensors of a stored type are copied to a device: fp16 is converted on the way
/// to fp32, which holds all of it, and fp8 to bf16.
[[nodiscard]] constexpr DType copied_as(DType stored) {
  return stored == DType::f16 ? DType::f32 : stored == DType::f8 ? DType::bf16 : stored;
}
/// Writes a row's k values in the type of copied_as().
void copy_values(const SourceRow& row, std::int64_t k, std::byte* out);

/// Throws Error (internal) when the slice is not whole rows of a matrix.
void require_whole_rows(const MatrixSlice& slice);

/// Whether all of the row's k elements are finite in `compute`. Reads them once, at memory speed;
/// packing reads the same bytes next.
[[nodiscard]] bool usable(const SourceRow& row, std::int64_t k, DType compute);
/// Throws UnusableWeight for the unusable row `index` of source_rows(slices).
[[noreturn]] void fail_unusable(std::span<const MatrixSlice> slices, std::int64_t index,
                                DType compute);
[[noreturn]] void fail_to_pack(const std::string& what);

}  // namespace paceline::kernels
