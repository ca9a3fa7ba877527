// The table of functions of one instruction set.
#include "kernels/cpu/parts.hpp"

#define PACELINE_STRING2(x) #x
#define PACELINE_STRING(x) PACELINE_STRING2(x)

namespace paceline::kernels::cpu::PACELINE_ISA {
namespace {

// Measured with the embedded target (8.5 MB) and two threads: speed with parts over speed with
// shared operations, by rows for each thread. With the tile unit, which takes little time for few
// rows, on a Xeon: 10 rows 0.94, 12 rows 1.07, 16 rows 1.16, 32 rows 1.17. With vectors of any
// size, on Zen 4: 2 rows 0.95 to 1.24, 3 rows 0.90 to 1.19, 4 rows 1.04 to 1.29, 6 rows 0.99 to
// 1.20, 8 rows 1.08 to 1.19, 12 rows 1.07 to 1.20; on the Xeon 8 rows 1.2 to 1.3.
#if defined(PACELINE_SIMD_AMX)
constexpr int kManyRows = 12;
#else
constexpr int kManyRows = 4;
#endif

}  // namespace

const KernelTable& table() {
  static const KernelTable functions = {
      .isa = PACELINE_STRING(PACELINE_ISA),
      .f32 = f32_products(),
      .bf16 = bf16_products(),
      .many_rows = kManyRows,
      .add_rmsnorm = &add_rmsnorm,
      .add_layernorm = &add_layernorm,
      .quick_gelu = &quick_gelu,
      .swiglu = &swiglu,
      .combine = &combine,
      .add_gated = &add_gated,
      .rope_and_store = &rope_and_store,
      .latent_rope_and_store = &latent_rope_and_store,
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
