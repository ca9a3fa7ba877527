// Row-wise operations on the device: embedding, norm, bias, gated activation, gathers. Pointers are
// to device memory; Operations specifies the results. Each row's bits depend on the row and its
// width, never on other rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/limits.hpp"
#include "runtime/core/types.hpp"

namespace paceline::kernels::cuda {

/// The rows of an embedding table for tokens [first, first + count), with `width` elements each.
struct EmbeddingRows {
  int first = 0;
  int count = 0;
  int width = 0;
};

/// out[r, :] = the row of tokens[r], or -0 if the table has none. table: [range.count, range.width]
/// of `dtype`; out: [rows, range.width].
void embed(const std::byte* table, DType dtype, const EmbeddingRows& range,
           const std::int32_t* tokens, int rows, float* out, cudaStream_t stream);

/// x[r, :] += delta[r, :] (delta may be null); out[r, :] = x / rms(x) * weight, of `dtype`. width:
/// at most kMaxNormWidth.
void add_rmsnorm(float* x, const float* delta, const float* weight, float epsilon, int rows,
                 int width, DType dtype, std::byte* out, cudaStream_t stream);

/// x[r, :] += bias. x: [rows, width].
void add_bias(float* x, const float* bias, int rows, int width, cudaStream_t stream);

/// out = silu(gate) * up, of `dtype`. gate_up: [rows, 2 * width], gate | up; out: [rows, width].
void swiglu(const float* gate_up, int rows, int width, DType dtype, std::byte* out,
            cudaStream_t stream);

/// out[r, first_column + i] = in[r, i], of `dtype`. in: [rows, width]; out: [rows, out_width].
void store_columns(const float* in, int rows, int width, DType dtype, std::byte* out, int out_width,
                   int first_column, cudaStream_t stream);

/// out[r, columns[i]] = in[r, i]. in: [rows, width]; columns: [width]; out: [rows, out_width].
void scatter_columns(const float* in, int rows, int width, const std::int32_t* columns, float* out,
                     int out_width, cudaStream_t stream);

/// out[i, :] = in[index[i], :]; rows of `bytes`. index: [count]; a negative index leaves out[i, :]
/// as it is.
void gather_rows(const std::byte* in, const std::int32_t* index, int count, std::size_t bytes,
                 std::byte* out, cudaStream_t stream);

}  // namespace paceline::kernels::cuda
