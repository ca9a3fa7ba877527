// Instruction sets of this machine, and their order of preference.
#include <algorithm>
#include <string>
#include <vector>

#if defined(PACELINE_X86)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/backend.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "runtime/core/error.hpp"

namespace paceline::kernels {
namespace {

const cpu::KernelTable* find_table(const std::string& isa) {
#if defined(PACELINE_X86)
  if (isa == "amx_bf16") return &cpu::amx_bf16::table();
  if (isa == "avx512_bf16") return &cpu::avx512_bf16::table();
  if (isa == "avx512") return &cpu::avx512::table();
  if (isa == "avx2") return &cpu::avx2::table();
#endif
  if (isa == "portable") return &cpu::portable::table();
  return nullptr;
}

#if defined(PACELINE_TILES_IN_SOFTWARE)
bool tiles_permitted() { return true; }
#elif defined(PACELINE_X86)
/// Whether the tile unit exists and the operating system lets this process use it. Threads started
/// later inherit the permission.
bool tiles_permitted() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kAmxBf16 = 1U << 22;
  constexpr unsigned kAmxTile = 1U << 24;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

}  // namespace

std::vector<std::string> supported_cpu_isas() {
  std::vector<std::string> isas;
#if defined(PACELINE_X86)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("fma");
  const bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
  if (bf16 && tiles_permitted()) isas.emplace_back("amx_bf16");
  if (avx512) isas.emplace_back("avx512");
  if (bf16) {
    // vdpbf16ps has half the multiply-add rate of fma on Intel cores and twice the rate on others.
    isas.insert(__builtin_cpu_is("intel") ? isas.end() : isas.begin(), "avx512_bf16");
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isas.emplace_back("avx2");
#endif
  isas.emplace_back("portable");
  return isas;
}

namespace cpu {

std::size_t attention_state_floats(int heads, int row_heads, int value_dim) {
  const int width = (value_dim + 15) / 16 * 16;  // whole vectors
  return (static_cast<std::size_t>(heads) * row_heads * (width + 2) + 15) / 16 * 16;
}

std::size_t attention_scratch_floats(const AttentionArgs& args, int row_heads, int path) {
  // Positions that are gathered: a tile of latent vectors, or a path in whole groups of 16.
  const std::size_t branch = args.latent ? kAttentionTile : path == 0 ? 0 : path + 2 * 15;
  return static_cast<std::size_t>(args.heads) *
             (std::size_t{kQueryStride} * row_heads + branch * (args.head_dim + args.value_dim)) +
         2 * attention_state_floats(args.heads, row_heads, args.value_dim) +
         16 * (kQueryStride + kRowTilesAbreast * (kAttentionTile + 1) + args.value_dim) +
         kAttentionTile / 2 * args.value_dim;
}

const KernelTable& kernel_table(const char* isa) {
  const std::vector<std::string> isas = supported_cpu_isas();
  const std::string wanted = std::string(isa) == "auto" ? isas.front() : isa;
  if (std::find(isas.begin(), isas.end(), wanted) == isas.end()) {
    std::string choices = "auto";
    for (const std::string& name : isas) choices += ", " + name;
    throw UsageError("instruction set '" + wanted + "': this machine offers " + choices);
  }
  return *find_table(wanted);
}

}  // namespace cpu
}  // namespace paceline::kernels
