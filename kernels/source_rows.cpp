#include "kernels/source_rows.hpp"

#include "runtime/core/error.hpp"

namespace paceline::kernels {

void fail_to_pack(const std::string& what) {
  throw Error(ExitCode::internal, "packing a weight matrix: " + what);
}

std::vector<SourceRow> source_rows(std::span<const MatrixSlice> slices,
                                   std::span<const float> bias) {
  std::vector<SourceRow> rows;
  for (const MatrixSlice& slice : slices) {
    if (slice.matrix == nullptr || slice.matrix->shape.size() != 2)
      fail_to_pack("a slice has no matrix");
    const TensorView& matrix = *slice.matrix;
    const std::int64_t width = matrix.shape[1];
    if (slice.first_row < 0 || slice.rows < 0 || slice.first_row + slice.rows > matrix.shape[0] ||
        slice.first_column < 0 || slice.columns <= 0 ||
        slice.first_column + slice.columns > width) {
      fail_to_pack("a slice lies outside its matrix");
    }
    if (slice.columns != slices[0].columns) fail_to_pack("slices of different widths");
    const std::size_t size = size_of(matrix.dtype);
    for (std::int64_t r = 0; r < slice.rows; ++r) {
      const std::size_t at = (slice.first_row + r) * width + slice.first_column;
      rows.push_back({matrix.bytes.data() + at * size, matrix.dtype});
    }
  }
  if (rows.empty()) fail_to_pack("no rows");
  if (!bias.empty() && bias.size() != rows.size()) fail_to_pack("bias of another length");
  return rows;
}

}  // namespace paceline::kernels
