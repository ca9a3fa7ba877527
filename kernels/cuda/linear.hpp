// Matrix products on the device: out[rows, n] = in[rows, k] * weight[n, k]^T (+ bias).
//
// The order of additions depends only on k and `segments`, never on the rows, kernel, tile or grid:
//
//   output  = tree over segments, neighbours first (+ bias)
//   segment = ((0 + chunk 0) + chunk 1) + ...       k / segments elements, cut into chunks
//   chunk   = one chain from zero over ascending k   kChunk elements, the last may be shorter
//
// In bf16 a link of the chain is one mma.m16n8k16 with the weight as A and the rows as B. A
// segment's last link is filled up with zeros. In fp32 a link is one fused multiply-add.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/linear_plan.hpp"

namespace paceline::kernels::cuda {

/// A packed weight in device memory.
struct DeviceLinear {
  LinearLayout layout;
  const std::byte* weight = nullptr;  ///< [layout.bytes()], aligned to 16
  const float* bias = nullptr;        ///< [n] in the order of features, or null
};

/// Device memory for partial sums in the products of one stream. It is zero when made, and every
/// product leaves its counters at zero.
struct LinearWorkspace {
  std::byte* data = nullptr;  ///< [kLinearWorkspaceBytes], aligned to 16
};

/// Packs rows [first_row, first_row + rows) of a matrix, in any order and in ranges of any size.
/// weight: [layout.bytes()], zeros when made. source: [rows, k] of type `stored`, aligned to 4. All
/// are in device memory. If the layout is bf16, fp32 values are rounded to the nearest bf16, ties
/// to even.
void pack_rows(const LinearLayout& layout, std::byte* weight, int first_row, int rows,
               const std::byte* source, DType stored, cudaStream_t stream);

/// Unpacks rows of a layout that is neither gated nor cut into segments: out[r, :] = row tokens[r]
/// - first of the packed matrix, or -0 if there is none. out: [rows, k] fp32, aligned to 8.
void unpack_rows(const LinearLayout& layout, const std::byte* weight, int first,
                 const std::int32_t* tokens, int rows, float* out, cudaStream_t stream);

/// Multiplies by a weight that is not gated. in: [rows, k] of the layout's dtype, aligned to 16;
/// out: [rows, n] fp32. All are in device memory. `rows` and `plan` become constants of a captured
/// graph; nothing is read from the host later.
void linear(const LinearPlan& plan, const DeviceLinear& weight, const std::byte* in, int rows,
            float* out, const LinearWorkspace& workspace, cudaStream_t stream);
/// Multiplies by a gated weight. out: [rows, n / 2] of its layout's dtype, silu(gate) * up.
void linear_swiglu(const LinearPlan& plan, const DeviceLinear& weight, const std::byte* in,
                   int rows, std::byte* out, const LinearWorkspace& workspace, cudaStream_t stream);

}  // namespace paceline::kernels::cuda
