// What the machine can do, measured in the run that uses the figures: they differ from host to host
// and, on shared machines, from minute to minute.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>

#include "kernels/backend.hpp"

namespace paceline::bench {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The best time of f in seconds: at least `runs` runs and about half a second.
template <class F>
double best_time(F&& f, int runs = 3) {
  f();
  double best = 1e9;
  const double start = now();
  for (int i = 0; i < runs || now() - start < 0.4; ++i) {
    const double before = now();
    f();
    best = std::min(best, now() - before);
  }
  return best;
}

struct Machine {
  double multiply_add = 0;  ///< FLOP/s, fp32 fused multiply-add
  /// FLOP/s, bf16 products by what the instruction set multiplies them with: the tile unit, the dot
  /// product, or fused multiply-adds; of a device, matrix products. 0: not known.
  double products = 0;
  double bandwidth = 0;  ///< bytes/s read from memory; of a device, read and written by copies
};

/// On `threads` threads at once, for an instruction set (BackendInfo::isa). Takes some 15 s.
[[nodiscard]] Machine measure_machine(int threads, const std::string& isa);

/// Bytes/s of reading pieces of `bytes`, a multiple of 256, that lie in memory in random order, as
/// KV does: 1 GiB of them. Takes 3 s.
[[nodiscard]] double measure_pieces(int threads, std::size_t bytes);

/// The device of the CUDA backend: bf16 matrix products as cuBLAS computes them (none where it is
/// not found, which is said on stderr) and copies within its memory.
[[nodiscard]] Machine measure_device();

}  // namespace paceline::bench
