// A weight matrix in the order of multiplication.
#pragma once

#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/source_rows.hpp"
#include "runtime/core/thread_pool.hpp"

namespace paceline::kernels::cpu {

/// Bytes of memory of a packed [n, k], a multiple of 64.
[[nodiscard]] std::size_t packed_bytes(std::int64_t n, std::int64_t k, DType compute);

/// A matrix packed in panels of kPanelWidth outputs: [panels][depth / 2][kPanelWidth][2] bf16 or
/// [panels][depth][kPanelWidth] fp32; outputs past n and inputs past k are zero.
class PackedLinear final : public Linear {
 public:
  /// `segments`: one, or a power of two up to kMaxSegments that divides k into even parts. Throws
  /// Error (internal) when the slices do not fit together, and UnusableWeight.
  PackedLinear(std::span<const MatrixSlice> slices, std::span<const float> bias, int segments,
               DType compute, const PackPlace& place, ThreadPool& pool);

  [[nodiscard]] int n() const override { return n_; }
  [[nodiscard]] int k() const override { return k_; }
  [[nodiscard]] std::size_t bytes() const override {
    return static_cast<std::size_t>(panels_) * kPanelWidth * depth_ * size_of(dtype_);
  }
  /// Padded k of the packed matrix: even for bf16.
  [[nodiscard]] int depth() const { return depth_; }
  [[nodiscard]] DType dtype() const { return dtype_; }

  [[nodiscard]] int segments() const { return segments_; }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] const float* bias() const { return bias_.empty() ? nullptr : bias_.data(); }

 private:
  void pack(std::span<const MatrixSlice> slices, std::span<const SourceRow> rows, ThreadPool& pool);

  int n_ = 0;
  int k_ = 0;
  int depth_ = 0;
  int panels_ = 0;
  int segments_ = 1;
  DType dtype_;
  std::vector<float> bias_;    ///< [n] or empty
  Memory memory_;              ///< empty if a PackPlace has the memory
  std::byte* data_ = nullptr;  ///< in memory_ or in the place
};

}  // namespace paceline::kernels::cpu
