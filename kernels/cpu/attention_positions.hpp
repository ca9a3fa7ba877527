// The positions that attention walks, and their K and V: in blocks of the cache or, on a branch of
// a tree, gathered from the blocks.
#pragma once

#include "kernels/cpu/parts.hpp"
#include "kernels/cpu/simd.hpp"
#include "kernels/cpu/tile.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

inline constexpr int kTile = 64;                // positions; kernels::kAttentionTile
inline constexpr int kGroups = kTile / kLanes;  // groups of 16 positions never straddle a block

/// The groups of a tile: the starts of K and V of 16 positions each.
struct Groups {
  const std::byte* k[kGroups];
  const std::byte* v[kGroups];
};

/// Prefetches, line by line, of the row tiles that visit a kv head of a tile: V while they score,
/// and K while they accumulate. On the tile unit they also fetch some lines of both in the softmax,
/// and each row tile goes on where the one before stopped. In vectors the first row tile fetches
/// everything.
struct Fetch {
  Ahead values[kGroups];
  Ahead keys[kGroups];
  int step_lines = 0;     ///< lines of each group in a step of the tile unit
  int softmax_lines = 0;  ///< lines of each group of V and of K in a softmax step
};

PACELINE_INLINE void fetch_line(Ahead& ahead) {
  prefetch_l2(ahead.next);
  ahead.next += ahead.step;
}

/// Positions that row heads walk: the common prefix of all sequences, or one sequence's rest.
struct Stretch {
  const std::int32_t* blocks;
  int begin, end;  ///< positions; begin is a multiple of kTile
  int in_cache;    ///< positions below it are in the cache, others in a branch
  int first_head, row_heads;
  int first_position;         ///< position of the first row
  int seen;                   ///< Segment::seen
  const AttentionRows* path;  ///< the sequence, if its rows have a path
};

/// The part of a stretch in the requested segments, or all of it.
PACELINE_INLINE Stretch in_segments(const AttentionArgs& args, Stretch stretch) {
  if (args.states == nullptr) return stretch;
  const int end = args.first + args.segments * kAttentionSegment;
  if (stretch.begin < args.first) stretch.begin = args.first;
  if (stretch.end > end) stretch.end = end;
  return stretch;
}

// attention_latent.hpp finds latent vectors; so here no position counts as in the cache.

PACELINE_INLINE Stretch shared_stretch(const AttentionArgs& args) {
  // All rows see the whole stretch.
  return in_segments(args, {args.sequences[0].blocks, 0, args.shared, args.latent ? 0 : args.shared,
                            0, args.row_heads, args.shared, 0, nullptr});
}

PACELINE_INLINE Stretch own_stretch(const AttentionArgs& args, const AttentionRows& rows,
                                    int first_head) {
  // End of the positions that any row sees.
  const int end = rows.seen > 0 ? rows.seen : rows.first_position + rows.rows;
  const bool displaced = rows.path != nullptr;
  const int in_cache = args.latent ? 0 : displaced ? rows.path_base / kLanes * kLanes : end;
  return in_segments(args,
                     {rows.blocks, args.shared, end, in_cache, first_head, rows.rows * args.group,
                      rows.first_position, rows.seen, displaced ? &rows : nullptr});
}

/// Positions gathered into one block for each kv head, all its K and then all its V. They are a
/// path, from the group of path_base on, or a tile of latent vectors.
struct Branch {
  int first = 0;            ///< first position
  int size = 0;             ///< positions, a multiple of 16
  std::size_t k_bytes = 0;  ///< bytes from K of a head to its V, and from there to the next head
  const std::byte* data = nullptr;
};

PACELINE_INLINE Branch gather_branch(const AttentionArgs& args, const Stretch& stretch, float* to) {
  const AttentionRows& rows = *stretch.path;
  Branch branch;
  branch.first = stretch.in_cache;
  branch.size = (stretch.end - branch.first + kLanes - 1) / kLanes * kLanes;
  branch.k_bytes = static_cast<std::size_t>(branch.size) * args.head_dim * (args.bf16 ? 2 : 4);
  auto* k = reinterpret_cast<std::byte*>(to);
  branch.data = k;
  for (int head = 0; head < args.heads; ++head, k += 2 * branch.k_bytes) {
    for (int position = branch.first; position < stretch.end; ++position) {
      const int at = position < rows.path_base ? position : rows.path[position - rows.path_base];
      const std::byte* block =
          args.cache + rows.blocks[at / args.block] * args.block_bytes + head * args.head_bytes;
      copy_slot({block, block + args.values, k, k + branch.k_bytes, args.block, branch.size,
                 at % args.block, position - branch.first, args.head_dim, args.bf16});
    }
  }
  return branch;
}

/// Number of groups that hold the first `positions` positions of a tile, at most kGroups.
PACELINE_INLINE int groups_of(int positions) {
  return positions >= kTile ? kGroups : positions <= 0 ? 0 : (positions + kLanes - 1) / kLanes;
}

/// Finds the groups of the stretch's tile at `start` that are in the cache, for the first kv head;
/// leaves other groups as they are.
PACELINE_INLINE void find_groups(const AttentionArgs& args, const Stretch& stretch, int start,
                                 Groups& tile) {
  const std::size_t v_bytes = static_cast<std::size_t>(args.value_dim) * (args.bf16 ? 2 : 4);
  const std::int32_t* number = stretch.blocks + start / args.block;
  int slot = start % args.block;
  for (int g = 0; g < groups_of(stretch.in_cache - start); ++g) {
    const std::byte* block = args.cache + *number * args.block_bytes;
    tile.k[g] = block + static_cast<std::size_t>(slot) * 4;  // a pair or one fp32
    tile.v[g] = block + args.values + slot * v_bytes;
    slot += kLanes;
    if (slot == args.block) {
      slot = 0;
      ++number;
    }
  }
}

/// The groups of another kv head at the positions of `of_first`, which are the first kv head's.
PACELINE_INLINE Groups of_head(const AttentionArgs& args, Groups of_first, int head) {
  for (int g = 0; g < kGroups; ++g) {
    of_first.k[g] += head * args.head_bytes;
    of_first.v[g] += head * args.head_bytes;
  }
  return of_first;
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
