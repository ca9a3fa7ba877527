// Functions that the sources of one instruction set contribute to its table.
#pragma once

#include "kernels/cpu/kernel_table.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

// gemm.cpp; for amx_bf16, bf16_products() is in gemm_amx.cpp
ProductKernels f32_products();
ProductKernels bf16_products();

// elementwise.cpp
void add_rmsnorm(const NormArgs& args, int first, int last);
void add_layernorm(const NormArgs& args, int first, int last);
void quick_gelu(const float* in, int width, bool bf16, std::byte* out);
void swiglu(const SwigluArgs& args);
void combine(const CombineArgs& args);
void add_gated(float* x, const float* delta, float gate, int width);

// rope.cpp
void rope_and_store(const RopeArgs& args, const RopeRow& row);
void latent_rope_and_store(const LatentArgs& args, const LatentRow& row);
void copy_slot(const SlotCopy& copy);

// attention.cpp
void attention(const AttentionArgs& args);
void attention_sum(const AttentionArgs& args);

// sample.cpp
ScanResult scan(const float* logits, int begin, int end, float inverse_temperature,
                float* chunk_max);
int gather(const float* logits, const float* chunk_max, int begin, int end,
           float inverse_temperature, float cut, std::int32_t* ids, float* values);
void exponentials(const float* in, float max, int count, float* out);
void rank(const RankArgs& args, int begin, int end, int count, float* values, std::int32_t* ids);
void noise_chunk(const NoiseArgs& noise, std::uint32_t chunk, std::uint32_t* bits, float* gumbel);
void math16(const float* x, const std::uint32_t* bits, float* exp_x, float* log_x, float* gumbel);

}  // namespace paceline::kernels::cpu::PACELINE_ISA
