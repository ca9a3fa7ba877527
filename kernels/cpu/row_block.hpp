// How the rows of a product are cut into blocks, and the panels prefetched by them.
#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

struct Block {
  int first, rows;
};

PACELINE_INLINE Block row_block(const LinearArgs& args, int index) {
  const int base = args.rows / args.row_blocks;
  const int larger = args.rows % args.row_blocks;
  if (index < larger) return {index * (base + 1), base + 1};
  return {index * base + larger, base};
}

/// Which share of the next panel a row block prefetches: part `index` of `count`.
struct Share {
  int index, count;
};

}  // namespace paceline::kernels::cpu::PACELINE_ISA
