// A product of rows with a packed weight, in units that threads share.
#pragma once

#include <cstddef>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/packed_linear.hpp"
#include "kernels/cpu/workspace.hpp"

namespace paceline::kernels::cpu {

/// The range [first, last).
struct Span {
  int first, last;
};

[[nodiscard]] constexpr int panels_of(int columns) {
  return (columns + kPanelWidth - 1) / kPanelWidth;
}

/// A product. Its units are some panels by some row blocks. Row blocks are taken in passes, whose
/// input stays in the cache while panels are streamed.
class Product {
 public:
  /// `in`: [rows, k] of the weight's dtype. `threads`: number of threads that share the product.
  /// All references and `in` must outlive this object.
  Product(const KernelTable& kernels, const Linear& weight, const std::byte* in, int rows,
          int threads);

  /// Bytes of the packed rows, in the order in which they are multiplied; 0: rows are read in
  /// place.
  [[nodiscard]] std::size_t packed_bytes() const { return packed_bytes_; }
  void set_packed(std::byte* packed) { args_.packed = packed; }
  void pack(int block) const { kernels_->pack_rows(args_, block, block + 1); }

  [[nodiscard]] int rows() const { return args_.rows; }
  [[nodiscard]] int k() const { return args_.k; }
  [[nodiscard]] int row_blocks() const { return args_.row_blocks; }
  [[nodiscard]] int passes() const { return passes_; }
  [[nodiscard]] Span blocks(int pass) const;
  [[nodiscard]] int panels() const { return panels_of(args_.n); }
  [[nodiscard]] int most_panels() const { return most_panels_; }  ///< best number for a unit

  /// reserve() makes room for multiply() in a thread's memory, reserve_gated() for gate().
  void reserve(Workspace& space) const;
  void reserve_gated(Workspace& space) const;

  /// out = in * weight^T (+ bias), for one unit. `out`: [rows, n] fp32.
  void multiply(Workspace& space, Span panels, Span blocks, float* out) const;

  /// out = silu(gate) * up for a weight of gates and then as many ups, both in whole panels, for a
  /// unit of panels below gate_panels(). `out`: [rows, n / 2] of the weight's dtype.
  void gate(Workspace& space, Span panels, Span blocks, std::byte* out) const;
  [[nodiscard]] int gate_panels() const { return panels() / 2; }

 private:
  const KernelTable* table_;
  const ProductKernels* kernels_;
  DType dtype_;
  LinearArgs args_{};  ///< without the output
  int passes_ = 1, blocks_of_pass_ = 1;
  int most_panels_ = 1;
  std::size_t packed_bytes_ = 0;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace paceline::kernels::cpu
