#include "kernels/source_rows.hpp"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "runtime/core/error.hpp"
#include "runtime/core/float16.hpp"

namespace paceline::kernels {
namespace {

SourceRow source_row(const MatrixSlice& slice, std::int64_t row) {
  const TensorView& matrix = *slice.matrix;
  const std::size_t at = (slice.first_row + row) * matrix.shape[1] + slice.first_column;
  return {matrix.bytes.data() + at * size_of(matrix.dtype), matrix.dtype};
}

void check_slice(const MatrixSlice& slice) {
  if (slice.matrix == nullptr || slice.matrix->shape.size() != 2)
    fail_to_pack("a slice has no matrix");
  const TensorView& matrix = *slice.matrix;
  if (slice.first_row < 0 || slice.rows < 0 || slice.first_row + slice.rows > matrix.shape[0] ||
      slice.first_column < 0 || slice.columns <= 0 ||
      slice.first_column + slice.columns > matrix.shape[1]) {
    fail_to_pack("a slice lies outside its matrix");
  }
}

/// Bits of unusable elements: their magnitude is at least `least`.
struct Unusable {
  std::uint64_t magnitude;  ///< mask
  std::uint64_t least;
  int bytes;  ///< of an element
};

Unusable unusable(DType stored, DType compute) {
  if (stored == DType::bf16) return {0x7FFF, 0x7F80, 2};
  if (stored == DType::f16) return {0x7FFF, 0x7C00, 2};  // bf16 has the range of all finite ones
  // fp32 magnitudes from there on round to infinity in bf16.
  return {0x7FFFFFFF, compute == DType::bf16 ? 0x7F7F8000U : 0x7F800000U, 4};
}

}  // namespace

void require_whole_rows(const MatrixSlice& slice) {
  check_slice(slice);
  if (slice.columns != slice.matrix->shape[1])
    fail_to_pack("rows of embeddings that are not whole");
}

void fail_to_pack(const std::string& what) {
  throw Error(ExitCode::internal, "packing a weight matrix: " + what);
}

std::vector<SourceRow> source_rows(std::span<const MatrixSlice> slices,
                                   std::span<const float> bias) {
  std::vector<SourceRow> rows;
  for (const MatrixSlice& slice : slices) {
    check_slice(slice);
    if (slice.columns != slices[0].columns) fail_to_pack("slices of different widths");
    for (std::int64_t r = 0; r < slice.rows; ++r) rows.push_back(source_row(slice, r));
  }
  if (rows.empty()) fail_to_pack("no rows");
  if (!bias.empty() && bias.size() != rows.size()) fail_to_pack("bias of another length");
  return rows;
}

void copy_values(const SourceRow& row, std::int64_t k, std::byte* out) {
  if (row.dtype != DType::f16) {
    std::memcpy(out, row.data, k * size_of(row.dtype));
    return;
  }
  for (std::int64_t i = 0; i < k; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, row.data + i * sizeof bits, sizeof bits);
    const float value = f16_to_float(bits);
    std::memcpy(out + i * sizeof value, &value, sizeof value);
  }
}

// Checks words of several elements at a time: a magnitude that is too large carries into the sign's
// place, and no further.
bool usable(const SourceRow& row, std::int64_t k, DType compute) {
  const Unusable bad = unusable(row.dtype, compute);
  const std::uint64_t sign = bad.magnitude + 1;
  const std::uint64_t each = bad.bytes == 2 ? 0x0001000100010001U : 0x0000000100000001U;
  const std::uint64_t magnitude = bad.magnitude * each;
  const std::uint64_t add = (sign - bad.least) * each;
  const std::size_t bytes = static_cast<std::size_t>(k) * bad.bytes;
  std::uint64_t carried = 0;
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= bytes; at += sizeof(std::uint64_t)) {
    std::uint64_t word;
    std::memcpy(&word, row.data + at, sizeof word);
    carried |= (word & magnitude) + add;
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, row.data + at, bytes - at);
  carried |= (rest & magnitude) + add;
  return (carried & sign * each) == 0;
}

void fail_unusable(std::span<const MatrixSlice> slices, std::int64_t index, DType compute) {
  std::size_t s = 0;
  for (; index >= slices[s].rows; ++s) index -= slices[s].rows;
  const MatrixSlice& slice = slices[s];
  const SourceRow row = source_row(slice, index);
  const Unusable bad = unusable(row.dtype, compute);
  std::int64_t column = 0;
  std::uint32_t bits = 0;
  for (;; ++column) {
    bits = 0;
    std::memcpy(&bits, row.data + column * bad.bytes, bad.bytes);
    if ((bits & bad.magnitude) >= bad.least) break;
  }
  const float value = row.dtype == DType::f16
                          ? f16_to_float(static_cast<std::uint16_t>(bits))
                          : std::bit_cast<float>(bad.bytes == 2 ? bits << 16 : bits);
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(value));
  const char* expected = std::isfinite(value) ? "a number that bf16 holds" : "a finite number";
  throw UnusableWeight({s, slice.first_row + index, slice.first_column + column},
                       std::string("expected ") + expected + ", found " + text);
}

void require_usable(const MatrixSlice& slice, DType compute) {
  check_slice(slice);
  for (std::int64_t r = 0; r < slice.rows; ++r) {
    if (!usable(source_row(slice, r), slice.columns, compute))
      fail_unusable({&slice, 1}, r, compute);
  }
}

}  // namespace paceline::kernels
