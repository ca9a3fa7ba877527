// Source rows of a matrix to be packed, for any backend.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels {

/// A row of the stacked matrix, in its stored form.
struct SourceRow {
  const std::byte* data = nullptr;  ///< [k], not necessarily aligned
  DType dtype = DType::f32;
  // For f8 only:
  const std::byte* scales = nullptr;  ///< scales of the row of blocks that contains this row
  DType scale_dtype = DType::f32;     ///< f32 or bf16
  std::int64_t first_column = 0;      ///< column of data[0] in the matrix
};

/// Row number `row` of the slice.
[[nodiscard]] SourceRow source_row(const MatrixSlice& slice, std::int64_t row);
/// Writes the k weights of the row in fp32, scales applied.
void to_floats(const SourceRow& row, std::int64_t k, float* out);

/// Source rows [n], in the order of the slices. Throws Error (internal) when there are none, when a
/// slice lies outside its matrix or has another width, and when `bias` is neither empty nor [n].
[[nodiscard]] std::vector<SourceRow> source_rows(std::span<const MatrixSlice> slices,
                                                 std::span<const float> bias);

/// The type in which tensors of type `stored` are copied to a device: fp16 is converted to fp32,
/// which keeps every bit, and fp8 to bf16.
[[nodiscard]] constexpr DType copied_as(DType stored) {
  return stored == DType::f16 ? DType::f32 : stored == DType::f8 ? DType::bf16 : stored;
}
/// Writes a row's k values in the type copied_as(row.dtype).
void copy_values(const SourceRow& row, std::int64_t k, std::byte* out);

/// Throws Error (internal) unless the slice consists of whole rows of a matrix.
void require_whole_rows(const MatrixSlice& slice);

/// Whether all of the row's k elements are finite in `compute`. Reads them once, at memory speed;
/// packing reads the same bytes next.
[[nodiscard]] bool usable(const SourceRow& row, std::int64_t k, DType compute);
/// Throws UnusableWeight for the unusable row `index` of source_rows(slices).
[[noreturn]] void fail_unusable(std::span<const MatrixSlice> slices, std::int64_t index,
                                DType compute);
[[noreturn]] void fail_to_pack(const std::string& what);

}  // namespace paceline::kernels
