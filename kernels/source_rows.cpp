#include "kernels/source_rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "runtime/core/error.hpp"
#include "runtime/core/stored_floats.hpp"

namespace paceline::kernels {
namespace {

float bf16_to_float(std::uint16_t x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}

template <class T>
T load(const std::byte* from, std::int64_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof value, sizeof value);
  return value;
}

/// Scale of the block that contains a column of the matrix.
float scale_at(const SourceRow& row, std::int64_t column) {
  const std::int64_t block = column / kScaleBlock;
  return row.scale_dtype == DType::f32 ? load<float>(row.scales, block)
                                       : bf16_to_float(load<std::uint16_t>(row.scales, block));
}

/// Calls `each(first, count, scale)` for the row's elements in blocks of one scale.
template <class Each>
void for_blocks(const SourceRow& row, std::int64_t k, const Each& each) {
  for (std::int64_t first = 0; first < k;) {
    const std::int64_t column = row.first_column + first;
    const std::int64_t count = std::min(k - first, kScaleBlock - column % kScaleBlock);
    each(first, count, scale_at(row, column));
    first += count;
  }
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

/// Bits of unusable elements: an element is unusable if its magnitude is at least `least`.
struct Unusable {
  std::uint64_t magnitude;  ///< mask of the magnitude's bits
  std::uint64_t least;
  int bytes;  ///< bytes of an element
};

Unusable unusable(DType stored, DType compute) {
  if (stored == DType::f8) return {0x7F, 0x7F, 1};
  if (stored == DType::bf16) return {0x7FFF, 0x7F80, 2};
  if (stored == DType::f16) return {0x7FFF, 0x7C00, 2};  // all finite ones are within bf16's range
  // fp32 magnitudes from 0x7F7F8000 on round to infinity in bf16.
  return {0x7FFFFFFF, compute == DType::bf16 ? 0x7F7F8000U : 0x7F800000U, 4};
}

/// Whether no scale of an f8 row makes one of its weights infinite or NaN.
bool usable_by_scales(const SourceRow& row, std::int64_t k) {
  constexpr float kHarmless = 0x1p118F;  // the largest f8 value is 448, less than 2^9
  bool all = true;
  for_blocks(row, k, [&](std::int64_t first, std::int64_t count, float scale) {
    if (std::abs(scale) <= kHarmless) return;
    for (std::int64_t i = first; i < first + count; ++i)
      all = all && std::isfinite(f8_weight(load<std::uint8_t>(row.data, i), scale));
  });
  return all;
}

}  // namespace

SourceRow source_row(const MatrixSlice& slice, std::int64_t row) {
  const TensorView& matrix = *slice.matrix;
  const std::int64_t in_matrix = slice.first_row + row;
  const std::size_t at = in_matrix * matrix.shape[1] + slice.first_column;
  SourceRow found{matrix.bytes.data() + at * size_of(matrix.dtype), matrix.dtype};
  if (matrix.dtype != DType::f8) return found;
  const TensorView& scales = *matrix.scales;
  found.scales =
      scales.bytes.data() + in_matrix / kScaleBlock * scales.shape[1] * size_of(scales.dtype);
  found.scale_dtype = scales.dtype;
  found.first_column = slice.first_column;
  return found;
}

void to_floats(const SourceRow& row, std::int64_t k, float* out) {
  switch (row.dtype) {
    case DType::f32:
      std::memcpy(out, row.data, k * sizeof(float));
      return;
    case DType::bf16:
      for (std::int64_t i = 0; i < k; ++i) out[i] = bf16_to_float(load<std::uint16_t>(row.data, i));
      return;
    case DType::f16:
      for (std::int64_t i = 0; i < k; ++i) out[i] = f16_to_float(load<std::uint16_t>(row.data, i));
      return;
    case DType::f8:
      for_blocks(row, k, [&](std::int64_t first, std::int64_t count, float scale) {
        for (std::int64_t i = first; i < first + count; ++i)
          out[i] = f8_weight(load<std::uint8_t>(row.data, i), scale);
      });
  }
}

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
  if (row.dtype == DType::f16) {
    for (std::int64_t i = 0; i < k; ++i) {
      const float value = f16_to_float(load<std::uint16_t>(row.data, i));
      std::memcpy(out + i * sizeof value, &value, sizeof value);
    }
  } else if (row.dtype == DType::f8) {
    for_blocks(row, k, [&](std::int64_t first, std::int64_t count, float scale) {
      for (std::int64_t i = first; i < first + count; ++i) {
        const float value = f8_weight(load<std::uint8_t>(row.data, i), scale);
        const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
        std::memcpy(out + i * sizeof bits, &bits, sizeof bits);
      }
    });
  } else {
    std::memcpy(out, row.data, k * size_of(row.dtype));
  }
}

// Checks several elements in a 64-bit word at a time: a magnitude that is too large carries into
// the place of the sign, and no further.
bool usable(const SourceRow& row, std::int64_t k, DType compute) {
  if (row.dtype == DType::f8 && !usable_by_scales(row, k)) return false;
  const Unusable bad = unusable(row.dtype, compute);
  const std::uint64_t sign = bad.magnitude + 1;
  const std::uint64_t each = bad.bytes == 1   ? 0x0101010101010101U
                             : bad.bytes == 2 ? 0x0001000100010001U
                                              : 0x0000000100000001U;
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
  const auto row_from = [&](std::int64_t column) {
    return source_row({slice.matrix, slice.first_row, slice.rows, slice.first_column + column, 1},
                      index);
  };
  std::int64_t column = 0;
  while (usable(row_from(column), 1, compute)) ++column;
  float value = 0;
  to_floats(row_from(column), 1, &value);
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
