// The q/k/v stage on the device: head norms if requested, rotary embedding, and the store into the
// paged cache. Layout of the cache: kv_layout.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/backend.hpp"

namespace paceline::kernels::cuda {

/// See Operations::rope_and_store(). All pointers, also in `params` and in `rope`, are to device
/// memory. positions, slots: [rows] of DeviceBatch; a row at position -1 is skipped. rotary:
/// [rows] positions for rotary embedding; null: `positions`. qkv: [rows, (heads + 2 kv_heads) *
/// head_dim]; q_out: [rows, heads * head_dim] of kv.dtype.
void rope_and_store(const QkvParams& params, const RopeTable& rope, const KvShape& kv, int layer,
                    std::byte* cache, const std::int32_t* positions, const RotaryPosition* rotary,
                    const std::int64_t* slots, int rows, const float* qkv, std::byte* q_out,
                    cudaStream_t stream);

}  // namespace paceline::kernels::cuda
