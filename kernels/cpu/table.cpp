// The table of one instruction set.
#include "kernels/cpu/parts.hpp"

#define PACELINE_STRING2(x) #x
#define PACELINE_STRING(x) PACELINE_STRING2(x)

namespace paceline::kernels::cpu::PACELINE_ISA {

const KernelTable& table() {
  static const KernelTable functions = {
      .isa = PACELINE_STRING(PACELINE_ISA),
      .f32 = f32_products(),
      .bf16 = bf16_products(),
      .add_rmsnorm = &add_rmsnorm,
      .swiglu = &swiglu,
      .rope_and_store = &rope_and_store,
      .copy_slot = &copy_slot,
      .attention = &attention,
      .attention_sum = &attention_sum,
      .scan = &scan,
      .gather = &gather,
      .exponentials = &exponentials,
      .rank = &rank,
      .noise_chunk = &noise_chunk,
      .math16 = &math16,
  };
  return functions;
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
