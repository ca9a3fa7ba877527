#include "kernels/cpu/packed_linear.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <string>

#include "kernels/cpu/bf16.hpp"
#include "kernels/source_rows.hpp"
#include "runtime/core/stored_floats.hpp"

namespace paceline::kernels::cpu {
namespace {

/// Element i of a row that is not f8.
float element(const SourceRow& row, int i) {
  if (row.dtype == DType::f32) {
    float x;
    std::memcpy(&x, row.data + static_cast<std::size_t>(i) * 4, 4);
    return x;
  }
  std::uint16_t x;
  std::memcpy(&x, row.data + static_cast<std::size_t>(i) * 2, 2);
  return row.dtype == DType::f16 ? f16_to_float(x) : bf16_to_float(x);
}

void pack_panel_bf16(std::span<const SourceRow> rows, int k, std::uint16_t* out) {
  const int count = static_cast<int>(rows.size());
  for (int i = 0; i < k; i += 2) {
    for (int j = 0; j < count; ++j) {
      std::uint16_t pair[2];
      if (rows[j].dtype == DType::bf16 && i + 1 < k) {
        std::memcpy(pair, rows[j].data + static_cast<std::size_t>(i) * 2, 4);
      } else {
        pair[0] = float_to_bf16(element(rows[j], i));
        pair[1] = i + 1 < k ? float_to_bf16(element(rows[j], i + 1)) : std::uint16_t{0};
      }
      std::memcpy(out + static_cast<std::ptrdiff_t>(i) * kPanelWidth + j * 2, pair, 4);
    }
  }
}

void pack_panel_f32(std::span<const SourceRow> rows, int k, float* out) {
  const int count = static_cast<int>(rows.size());
  for (int i = 0; i < k; ++i) {
    for (int j = 0; j < count; ++j) {
      out[static_cast<std::ptrdiff_t>(i) * kPanelWidth + j] = element(rows[j], i);
    }
  }
}

/// Replaces f8 rows by bf16 rows in `memory`: f8 is converted along a row, but a panel is packed
/// across rows.
void convert_f8(std::span<SourceRow> rows, int k, std::vector<std::byte>& memory) {
  const std::size_t row_bytes = k * size_of(DType::bf16);
  for (std::size_t j = 0; j < rows.size(); ++j) {
    if (rows[j].dtype != DType::f8) continue;
    memory.resize(rows.size() * row_bytes);
    std::byte* const out = memory.data() + j * row_bytes;
    copy_values(rows[j], k, out);
    rows[j] = {out, DType::bf16};
  }
}

/// Padded k of a packed matrix: even for bf16.
std::int64_t packed_depth(std::int64_t k, DType compute) {
  return compute == DType::bf16 ? k + k % 2 : k;
}

}  // namespace

std::size_t packed_bytes(std::int64_t n, std::int64_t k, DType compute) {
  const std::int64_t panels = (n + kPanelWidth - 1) / kPanelWidth;
  return panels * kPanelWidth * packed_depth(k, compute) * size_of(compute) + kPanelSlack;
}

PackedLinear::PackedLinear(std::span<const MatrixSlice> slices, std::span<const float> bias,
                           int segments, DType compute, const PackPlace& place, ThreadPool& pool)
    : segments_(segments), dtype_(compute), bias_(bias.begin(), bias.end()) {
  const std::vector<SourceRow> rows = source_rows(slices, bias);
  n_ = static_cast<int>(rows.size());
  k_ = static_cast<int>(slices[0].columns);
  if (segments < 1 || segments > kMaxSegments ||
      !std::has_single_bit(static_cast<unsigned>(segments)))
    fail_to_pack(std::to_string(segments) + " segments: not a power of two up to " +
                 std::to_string(kMaxSegments));
  if (segments > 1 && k_ % (2 * segments) != 0)
    fail_to_pack(std::to_string(k_) + " columns do not divide into " + std::to_string(segments) +
                 " even segments");

  panels_ = (n_ + kPanelWidth - 1) / kPanelWidth;
  depth_ = static_cast<int>(packed_depth(k_, compute));
  const std::size_t needed = packed_bytes(n_, k_, compute);
  if (place.memory.empty()) {
    memory_ = Memory(needed);
    data_ = memory_.data();
  } else {
    if (place.memory.size() < needed) fail_to_pack("a place that is too small");
    data_ = place.memory.data();
  }
  if (place.packs) pack(slices, rows, pool);
}

void PackedLinear::pack(std::span<const MatrixSlice> slices, std::span<const SourceRow> rows,
                        ThreadPool& pool) {
  const std::size_t panel_bytes = static_cast<std::size_t>(depth_) * kPanelWidth * size_of(dtype_);
  std::atomic<int> first_unusable = n_;  // row
  // Each thread packs the panels that it will multiply with, so that its first touch allocates them
  // near it. Checking rows brings them into the cache, from which they are then packed.
  pool.for_units(panels_, [&](int, int panel) {
    const int first = panel * kPanelWidth;
    const int count = n_ - first < kPanelWidth ? n_ - first : kPanelWidth;
    std::array<SourceRow, kPanelWidth> part_rows;
    const std::span<SourceRow> part = std::span(part_rows).first(count);
    std::copy_n(&rows[first], count, part.begin());
    for (int j = 0; j < count; ++j) {
      if (usable(part[j], k_, dtype_)) continue;
      int before = first_unusable;
      while (first + j < before && !first_unusable.compare_exchange_weak(before, first + j)) {
      }
      return;
    }
    std::vector<std::byte> converted;
    convert_f8(part, k_, converted);
    std::byte* out = data_ + panel * panel_bytes;
    if (dtype_ == DType::bf16) {
      pack_panel_bf16(part, k_, reinterpret_cast<std::uint16_t*>(out));
    } else {
      pack_panel_f32(part, k_, reinterpret_cast<float*>(out));
    }
  });
  if (first_unusable < n_) fail_unusable(slices, first_unusable, dtype_);
}

}  // namespace paceline::kernels::cpu
