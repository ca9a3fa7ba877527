#include "kernels/cpu/product.hpp"

#include <algorithm>

namespace paceline::kernels::cpu {

Product::Product(const KernelTable& kernels, const Linear& weight, const std::byte* in, int rows,
                 int threads)
    : table_(&kernels) {
  const auto& packed = dynamic_cast<const PackedLinear&>(weight);
  dtype_ = packed.dtype();
  kernels_ = dtype_ == DType::bf16 ? &kernels.bf16 : &kernels.f32;
  args_.weight = packed.data();
  args_.n = packed.n();
  args_.k = packed.depth();
  args_.in_width = packed.k();
  args_.segments = packed.segments();
  args_.bias = packed.bias();
  args_.in = in;
  args_.rows = rows;
  args_.threads = threads;
  const int most_rows = kernels_->max_rows;
  args_.row_blocks = (rows + most_rows - 1) / most_rows;
  const Blocking blocking = kernels_->blocking(args_);
  if (blocking.packs) {
    packed_bytes_ =
        kernels_->packed_row_bytes(args_.k, args_.segments) * most_rows * args_.row_blocks;
  }
  passes_ = (args_.row_blocks + blocking.blocks - 1) / blocking.blocks;
  blocks_of_pass_ = (args_.row_blocks + passes_ - 1) / passes_;
  most_panels_ = blocking.panels;
  scratch_bytes_ = blocking.scratch_bytes;
}

Span Product::blocks(int pass) const {
  const int first = pass * blocks_of_pass_;
  return {first, std::min(args_.row_blocks, first + blocks_of_pass_)};
}

void Product::reserve(Workspace& space) const { space.sums.reserve(scratch_bytes_); }

void Product::reserve_gated(Workspace& space) const {
  reserve(space);
  if (kernels_->linear_swiglu != nullptr && args_.bias == nullptr) return;
  space.products.reserve(sizeof(float) * args_.rows * 2 * most_panels_ * kPanelWidth);
}

void Product::multiply(Workspace& space, Span panels, Span blocks, float* out) const {
  LinearArgs args = args_;
  args.scratch = space.sums.data();
  args.out = out;
  args.out_stride = args.n;
  args.first_column = 0;
  kernels_->linear(args, panels.first, panels.last, blocks.first, blocks.last);
}

// A thread multiplies a panel of gates and the same panel of ups, and combines them: these
// products, four times as large as the result, stay in its caches.
void Product::gate(Workspace& space, Span panels, Span blocks, std::byte* out) const {
  LinearArgs args = args_;
  args.scratch = space.sums.data();
  if (kernels_->linear_swiglu != nullptr && args.bias == nullptr) {
    kernels_->linear_swiglu(args, out, panels.first, panels.last, blocks.first, blocks.last);
    return;
  }
  auto* products = reinterpret_cast<float*>(space.products.data());
  const int most_columns = most_panels_ * kPanelWidth;
  const int half = gate_panels();
  args.out_stride = 2 * most_columns;
  for (const int up : {0, 1}) {
    args.out = products + up * most_columns;
    args.first_column = (up * half + panels.first) * kPanelWidth;
    kernels_->linear(args, up * half + panels.first, up * half + panels.last, blocks.first,
                     blocks.last);
  }
  const int width = half * kPanelWidth;
  const int row = kernels_->first_row(args, blocks.first);
  const std::size_t at =
      static_cast<std::size_t>(row) * width + static_cast<std::size_t>(panels.first) * kPanelWidth;
  const float* gates = products + row * args.out_stride;
  table_->swiglu({gates, gates + most_columns, out + at * size_of(dtype_), args.out_stride, width,
                  kernels_->first_row(args, blocks.last) - row,
                  (panels.last - panels.first) * kPanelWidth, dtype_ == DType::bf16});
}

}  // namespace paceline::kernels::cpu
