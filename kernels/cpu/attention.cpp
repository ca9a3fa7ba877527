// Causal attention over a paged cache (layout: rope.cpp), all query heads of one kv head together,
// of rows of one sequence or several. What sequences have in common is walked once, with the row
// heads of all of them; then each walks its own positions. While a tile is computed with, the next
// one is fetched, be it another sequence's.
//
// Keys are walked in tiles of 64 absolute positions; within a tile every score is one chain of
// fused multiply-adds over the head, the softmax runs online from tile to tile, and every output
// lane is one chain over positions in ascending order. A position a row may not see has weight
// exactly 0 and a tile it may not see scales its state by exactly 1, so a row's bits do not depend
// on the rows computed with it nor on the size of the blocks. On a branch of a tree, the groups of
// positions in which ancestors stand are first put together in order, as if there were no other
// branch; from there on nothing tells a tree from a chain. Weights stay in fp32: rounding them
// to bf16 would cost accuracy and, with fused multiply-adds as the faster instruction, save
// nothing.
//
// A head is a multiple of 8 elements. Where it is none of 16, its last vector is half of one, whose
// other lanes are zero in registers and in scratch memory; in the cache they are not there.
#include "kernels/cpu/parts.hpp"
#include "kernels/cpu/simd_math.hpp"
#include "kernels/cpu/tile.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {
namespace {

constexpr int kTile = 64;                // positions; kernels::kAttentionTile
constexpr int kGroups = kTile / kLanes;  // groups of 16 positions never straddle a block
constexpr std::ptrdiff_t kLine = 64;     // bytes of a cache line

struct Scratch {
  float* q;       // [row heads][kQueryStride], scaled by 1 / sqrt(head_dim)
  float* out;     // [row heads][whole vectors of head_dim] accumulators
  float* max;     // [row heads]
  float* total;   // [row heads]
  float* scores;  // [rows of a row tile][kTile]: scores, then weights
  float* alpha;   // [rows of a row tile] what the tile scales the accumulators by
  float* tail;    // [16][head_dim] the last group of V, zero past the last position
  float* branch;  // K, then V of the positions of a path from its first group on, as one block
};

/// The groups of a tile: where K and V of 16 positions start.
struct Groups {
  const std::byte* k[kGroups];
  const std::byte* v[kGroups];
};

/// What a head's visit to a tile prefetches, K or V of a group each, line by line: the first
/// kGroups while it scores, the others while it accumulates.
struct Fetch {
  Ahead at[2 * kGroups];
};

/// scores[r][...] of NV groups = q . k, for MR row heads. `block`: positions of the block that
/// holds the groups.
template <bool bf16, int MR, int NV>
void score(const AttentionArgs& args, const float* q, const std::byte* const* groups,
           const Ahead* fetch, int block, float* scores) {
  const std::uint32_t* b[NV];
  Ahead ahead[NV];
  PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
    b[v] = reinterpret_cast<const std::uint32_t*>(groups[v]);
    ahead[v] = fetch[v];
  }
  Tile<MR, NV> tile;
  clear(tile);
  if constexpr (bf16) {
    multiply_pairs<MR, NV, kQueryStride, 1, Prefetch::each>(tile, q, b, block, args.head_dim / 2,
                                                            ahead);
  } else {
    multiply_singles<MR, NV, kQueryStride, 1, Prefetch::each>(tile, q, b, block, args.head_dim,
                                                              ahead);
  }
  PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
      store(scores + r * kTile + v * kLanes, tile.at[r][v]);
    }
  }
}

/// Elements of the whole vectors that hold a head.
PACELINE_INLINE int whole_vectors(int head_dim) {
  return (head_dim + kLanes - 1) / kLanes * kLanes;
}

/// out[r][NV * 16 lanes] = alpha[r] * out + weights . V over `count` groups. kHalf: V has the first
/// 8 lanes alone.
template <bool bf16, int MR, int NV, bool kHalf = false>
void accumulate(const AttentionArgs& args, const float* weights, const float* alpha,
                const Groups& groups, const Ahead* fetch, int count, int lane, float* out) {
  // Lines of K or V of a group for each vector of it.
  constexpr int kSteps = bf16 ? kLanes / 2 : kLanes;
  const int d = args.head_dim;
  const int width = whole_vectors(d);
  Tile<MR, NV> tile;
  PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
    const F32 scale = set1(alpha[r]);
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
      tile.at[r][v] = load(out + r * width + lane + v * kLanes) * scale;
    }
  }
  for (int g = 0; g < count; ++g) {
    const std::uint32_t* b[NV];
    Ahead ahead[NV];
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
      const std::ptrdiff_t at = lane + v * kLanes;
      b[v] = reinterpret_cast<const std::uint32_t*>(groups.v[g]) + at;
      const std::ptrdiff_t step = fetch[g].step;
      ahead[v] = {fetch[g].next + at / kLanes * kSteps * step, step};
    }
    if constexpr (bf16) {
      multiply_pairs<MR, NV, kTile, 1, Prefetch::each, kHalf>(tile, weights + g * kLanes, b, d,
                                                              kSteps, ahead);
    } else {
      multiply_singles<MR, NV, kTile, 1, Prefetch::each, kHalf>(tile, weights + g * kLanes, b, d,
                                                                kSteps, ahead);
    }
  }
  PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
      store(out + r * width + lane + v * kLanes, tile.at[r][v]);
    }
  }
}

/// Vectors side by side with few rows, as in gemm.cpp.
constexpr int wide_vectors(int rows) {
#if defined(PACELINE_SIMD_AVX512)
  return rows <= 4 ? 4 : 2;
#elif defined(PACELINE_SIMD_AVX2)
  return rows == 1 ? 4 : rows == 2 ? 2 : 1;
#else
  return rows == 1 ? 2 : 1;
#endif
}

/// Scores of MR row heads over groups [first, last) of the tile, which lie in blocks of `block`
/// positions.
template <bool bf16, int MR>
void score_tile(const AttentionArgs& args, const float* q, const Groups& tile, const Ahead* fetch,
                int first, int last, int block, float* scores) {
  constexpr int kWide = wide_vectors(MR);
  int g = first;
  for (; g + kWide <= last; g += kWide) {
    score<bf16, MR, kWide>(args, q, tile.k + g, fetch + g, block, scores + g * kLanes);
  }
  for (; g < last; ++g) {
    score<bf16, MR, 1>(args, q, tile.k + g, fetch + g, block, scores + g * kLanes);
  }
}

template <bool bf16, int MR>
void accumulate_tile(const AttentionArgs& args, const float* weights, const float* alpha,
                     const Groups& tile, const Ahead* fetch, int groups, float* out) {
  constexpr int kWide = wide_vectors(MR);
  int lane = 0;
  for (; lane + kWide * kLanes <= args.head_dim; lane += kWide * kLanes) {
    accumulate<bf16, MR, kWide>(args, weights, alpha, tile, fetch, groups, lane, out);
  }
  for (; lane + kLanes <= args.head_dim; lane += kLanes) {
    accumulate<bf16, MR, 1>(args, weights, alpha, tile, fetch, groups, lane, out);
  }
  if (lane < args.head_dim) {
    accumulate<bf16, MR, 1, true>(args, weights, alpha, tile, fetch, groups, lane, out);
  }
}

/// Row head r sees the tile's positions below visible[r]; the others have no score, whatever was in
/// their place. Groups that were not computed hold old values; they are not even compared.
PACELINE_INLINE void hide(float* scores, int rows, const int* visible) {
  const F32 none = set1(-__builtin_inff());
  for (int r = 0; r < rows; ++r) {
    if (visible[r] >= kTile) continue;
    float* s = scores + r * kTile;
    PACELINE_UNROLL for (int g = 0; g < kGroups; ++g) {
      const int lanes = visible[r] - g * kLanes > 0 ? visible[r] - g * kLanes : 0;
      const Mask seen = less_int(lane_ids(), set1(static_cast<std::uint32_t>(lanes)));
      store(s + g * kLanes, select(seen, load(s + g * kLanes), none));
    }
  }
}

/// The softmax step of a row tile of MR rows: scores become weights. The state of all row heads
/// lies side by side, one a lane: a store of single lanes that is soon loaded whole would wait.
/// alpha: [kLanes].
template <int MR>
void softmax_step(float* scores, float* max_so_far, float* total, float* alpha) {
  static_assert(MR <= kLanes);
  F32 rows[MR];
  PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
    const float* s = scores + r * kTile;
    rows[r] = max(max(load(s), load(s + kLanes)), max(load(s + 2 * kLanes), load(s + 3 * kLanes)));
  }
  const F32 before = load_part(max_so_far, MR);
  const F32 top = max(max_lanes(rows), before);
  const F32 scale = exp(before - top);
  float tops[kLanes];
  store(tops, top);
  store_part(max_so_far, top, MR);
  store(alpha, scale);
  PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
    float* s = scores + r * kTile;
    F32 w[kGroups];
    PACELINE_UNROLL for (int g = 0; g < kGroups; ++g) {
      w[g] = exp(load(s + g * kLanes) - set1(tops[r]));
      store(s + g * kLanes, w[g]);
    }
    rows[r] = (w[0] + w[1]) + (w[2] + w[3]);
  }
  store_part(total, load_part(total, MR) * scale + sums(rows), MR);
}

struct TileFunctions {
  void (*score)(const AttentionArgs&, const float*, const Groups&, const Ahead*, int, int, int,
                float*);
  void (*soften)(float*, float*, float*, float*);
  void (*accumulate)(const AttentionArgs&, const float*, const float*, const Groups&, const Ahead*,
                     int, float*);
};

template <bool bf16>
TileFunctions tile_functions(int rows) {
  switch (rows) {
#define PACELINE_CASE(MR)                                                            \
  case MR:                                                                           \
    if constexpr (MR <= kMaxTileRows) {                                              \
      return {&score_tile<bf16, MR>, &softmax_step<MR>, &accumulate_tile<bf16, MR>}; \
    }                                                                                \
    break;
    PACELINE_CASE(1)
    PACELINE_CASE(2)
    PACELINE_CASE(3)
    PACELINE_CASE(4)
    PACELINE_CASE(5)
    PACELINE_CASE(6)
    PACELINE_CASE(7)
    PACELINE_CASE(8)
    PACELINE_CASE(9)
    PACELINE_CASE(10)
    PACELINE_CASE(11)
    PACELINE_CASE(12)
#undef PACELINE_CASE
    default:
      break;
  }
  __builtin_trap();
}

template <bool bf16>
PACELINE_INLINE F32 load_as(const std::byte* p, std::size_t index, int lanes) {
  if constexpr (bf16) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(p) + index;
    return lanes == kLanes ? load_bf16(from) : load_bf16_part(from, lanes);
  } else {
    const auto* from = reinterpret_cast<const float*>(p) + index;
    return lanes == kLanes ? load(from) : load_part(from, lanes);
  }
}

/// The first `valid` positions of a group of V, and zeros: what lies past the last position may be
/// anything, and 0 times a NaN is a NaN. to: [16][d].
template <bool bf16>
PACELINE_INLINE void copy_tail(const std::byte* v, int valid, int d, float* to) {
  // Words of [16][d] fp32, or of [8][d] pairs of bf16, the earlier position in the lower half.
  constexpr int kPerWord = bf16 ? 2 : 1;
  const auto* from = reinterpret_cast<const std::uint32_t*>(v);
  auto* words = reinterpret_cast<std::uint32_t*>(to);
  for (int p = 0; p < kLanes; p += kPerWord) {
    const U32 seen = set1(p + kPerWord <= valid ? 0xFFFFFFFFU : p < valid ? 0xFFFFU : 0U);
    const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(p / kPerWord) * d;
    int i = 0;
    for (; i + kLanes <= d; i += kLanes) store(words + first + i, load(from + first + i) & seen);
    if (i < d) store_half(words + first + i, load_half(from + first + i) & seen);
  }
}

/// Positions that row heads walk: those that all sequences have in common, or what follows of one.
struct Stretch {
  const std::int32_t* blocks;
  int begin, end;  ///< positions; begin is a multiple of kTile
  int in_cache;    ///< positions before this one lie in the cache, the others in a branch
  int first_head, row_heads;
  int first_position;         ///< of the first row
  const AttentionRows* path;  ///< the sequence, where its rows have one
};

Stretch shared_stretch(const AttentionArgs& args) {
  // The rows see all of it.
  return {args.sequences[0].blocks, 0,           args.shared, args.shared, 0,
          args.row_heads,           args.shared, nullptr};
}

Stretch own_stretch(const AttentionArgs& args, const AttentionRows& rows, int first_head) {
  const int end = rows.first_position + rows.rows;  // that some row sees
  const bool displaced = rows.path != nullptr;
  return {rows.blocks,
          args.shared,
          end,
          displaced ? rows.path_base / kLanes * kLanes : end,
          first_head,
          rows.rows * args.group,
          rows.first_position,
          displaced ? &rows : nullptr};
}

/// Where a path is put together: for each kv head one block that begins with the group of
/// path_base, all K and then all V of it.
struct Branch {
  int first = 0;            ///< position at which it begins
  int size = 0;             ///< positions, a multiple of 16
  std::size_t k_bytes = 0;  ///< K of one head, as much as V
  const std::byte* data = nullptr;
};

Branch gather_branch(const AttentionArgs& args, const Stretch& stretch, float* to) {
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

/// Groups of a tile that hold the first `positions` of it, as many as it has.
PACELINE_INLINE int groups_of(int positions) {
  return positions >= kTile ? kGroups : positions <= 0 ? 0 : (positions + kLanes - 1) / kLanes;
}

/// Finds the groups of the stretch's tile at `start` that lie in the cache, of the first kv head;
/// the others stay.
void find_groups(const AttentionArgs& args, const Stretch& stretch, int start, Groups& tile) {
  const std::size_t v_bytes = static_cast<std::size_t>(args.head_dim) * (args.bf16 ? 2 : 4);
  for (int g = 0; g < groups_of(stretch.in_cache - start); ++g) {
    const int at = start + g * kLanes;
    const int slot = at % args.block;
    const std::byte* block = args.cache + stretch.blocks[at / args.block] * args.block_bytes;
    tile.k[g] = block + static_cast<std::size_t>(slot) * 4;  // a pair or one fp32
    tile.v[g] = block + args.values + slot * v_bytes;
  }
}

/// What kv head `head` of a tile is to fetch of the tile that comes next: V of all heads, then K of
/// all heads, group by group, in as many parts as there are heads. Memory gives the neighbours in a
/// block sooner than what is strewn about (measured: 12 GB/s of pieces of 2 KB, 16 GB/s of 8 KB),
/// and V, which is needed last, first leaves time for both (K first is 3 % slower).
PACELINE_INLINE void fetch_part(const AttentionArgs& args, const Groups& next, int head,
                                Fetch& fetch) {
  const int all = kGroups * args.heads;  // parts of V, and of K
  int part = 2 * kGroups * head;
  for (Ahead& at : fetch.at) {
    const int group = part % all / args.heads;
    const std::size_t of_head = part % args.heads * args.head_bytes;
    if (part < all) {
      at = {next.v[group] + of_head, kLine};
    } else {
      at = {next.k[group] + of_head, std::ptrdiff_t{4} * args.block};
    }
    ++part;
  }
}

/// One kv head of a tile: where its groups are, how many there are and how many of these in the
/// cache.
struct Visit {
  Groups tile;
  int groups, in_cache;
  int branch_size;  ///< positions of the block that holds the others
};

/// Takes the row heads of a stretch through one kv head of the tile that begins at `start`.
template <bool bf16>
void visit_tile(const AttentionArgs& args, const Scratch& scratch, const Stretch& stretch,
                int start, int head, const Visit& visit, const Fetch& fetch) {
  const int width = whole_vectors(args.head_dim);
  const int row_tiles = (stretch.row_heads + kMaxTileRows - 1) / kMaxTileRows;
  const int base_rows = stretch.row_heads / row_tiles;
  const int larger = stretch.row_heads % row_tiles;
  const bool all_seen = start + kTile <= stretch.first_position + 1;
  // What the first row tile has fetched the others need not.
  Fetch nothing;
  for (Ahead& at : nothing.at) at = {visit.tile.k[0], 0};
  const Ahead* ahead = fetch.at;
  for (int t = 0, of_stretch = 0; t < row_tiles; ++t) {
    const int rows = base_rows + (t < larger ? 1 : 0);
    const int first = head * args.row_heads + stretch.first_head + of_stretch;
    const TileFunctions run = tile_functions<bf16>(rows);
    const float* q = scratch.q + static_cast<std::ptrdiff_t>(first) * kQueryStride;
    run.score(args, q, visit.tile, ahead, 0, visit.in_cache, args.block, scratch.scores);
    run.score(args, q, visit.tile, ahead, visit.in_cache, visit.groups, visit.branch_size,
              scratch.scores);
    if (!all_seen) {
      int visible[kLanes];
      for (int r = 0; r < rows; ++r)
        visible[r] = stretch.first_position + (of_stretch + r) / args.group + 1 - start;
      hide(scratch.scores, rows, visible);
    }
    run.soften(scratch.scores, scratch.max + first, scratch.total + first, scratch.alpha);
    run.accumulate(args, scratch.scores, scratch.alpha, visit.tile, ahead + kGroups, visit.groups,
                   scratch.out + static_cast<std::ptrdiff_t>(first) * width);
    of_stretch += rows;
    ahead = nothing.at;
  }
}

/// Takes the row heads of a stretch through its tiles. `after`: the stretch that comes next, if
/// any.
template <bool bf16>
void walk(const AttentionArgs& args, const Scratch& scratch, const Stretch& stretch,
          const Stretch* after) {
  const int d = args.head_dim;
  Branch branch;
  if (stretch.path != nullptr) branch = gather_branch(args, stretch, scratch.branch);
  Groups next;  // where there is no group, some place that may be fetched
  for (int g = 0; g < kGroups; ++g) next.k[g] = next.v[g] = args.cache;
  find_groups(args, stretch, stretch.begin, next);
  for (int start = stretch.begin; start < stretch.end; start += kTile) {
    const int left = stretch.end - start;
    const Groups tile = next;
    // Where nothing comes next, prefetching finds what is there already.
    if (left > kTile) {
      find_groups(args, stretch, start + kTile, next);
    } else if (after != nullptr) {
      find_groups(args, *after, after->begin, next);
    }
    Visit visit;
    visit.groups = groups_of(left);
    visit.in_cache = groups_of(stretch.in_cache - start);
    visit.branch_size = branch.size;
    for (int head = 0; head < args.heads; ++head) {
      for (int g = 0; g < visit.groups; ++g) {
        if (g < visit.in_cache) {
          visit.tile.k[g] = tile.k[g] + head * args.head_bytes;
          visit.tile.v[g] = tile.v[g] + head * args.head_bytes;
        } else {
          const std::size_t at = start + g * kLanes - branch.first;
          const std::byte* k = branch.data + 2 * head * branch.k_bytes;
          visit.tile.k[g] = k + at * 4;
          visit.tile.v[g] = k + branch.k_bytes + at * d * (bf16 ? 2 : 4);
        }
      }
      if (left < visit.groups * kLanes) {
        const std::byte*& last = visit.tile.v[visit.groups - 1];
        copy_tail<bf16>(last, left - (visit.groups - 1) * kLanes, d, scratch.tail);
        last = reinterpret_cast<const std::byte*>(scratch.tail);
      }
      Fetch fetch;
      fetch_part(args, next, head, fetch);
      visit_tile<bf16>(args, scratch, stretch, start, head, visit, fetch);
    }
  }
}

/// Calls f(rows, row head, its first element in the q and out of those rows) in the order in which
/// row heads lie in scratch memory.
template <class F>
PACELINE_INLINE void for_row_heads(const AttentionArgs& args, F&& f) {
  int row_head = 0;
  for (int head = 0; head < args.heads; ++head) {
    for (int s = 0; s < args.count; ++s) {
      const AttentionRows& rows = args.sequences[s];
      for (int r = 0; r < rows.rows * args.group; ++r) {
        const int of_row = head * args.group + r % args.group;
        f(rows, row_head++,
          r / args.group * args.stride + static_cast<std::size_t>(of_row) * args.head_dim);
      }
    }
  }
}

template <bool bf16>
void attend(const AttentionArgs& args) {
  const int d = args.head_dim;
  const int width = whole_vectors(d);
  const int row_heads = args.heads * args.row_heads;
  Scratch scratch;
  scratch.q = args.scratch;
  scratch.out = scratch.q + static_cast<std::ptrdiff_t>(row_heads) * kQueryStride;
  scratch.max = scratch.out + static_cast<std::ptrdiff_t>(row_heads) * width;
  scratch.total = scratch.max + row_heads;
  scratch.scores = scratch.total + row_heads;
  scratch.alpha = scratch.scores + kLanes * kTile;
  scratch.tail = scratch.alpha + kLanes;
  scratch.tail += (16 - (reinterpret_cast<std::uintptr_t>(scratch.tail) / 4) % 16) % 16;
  scratch.branch = scratch.tail + static_cast<std::ptrdiff_t>(kLanes) * d;

  const F32 scale = set1(1.0F) / sqrt(set1(static_cast<float>(d)));
  for_row_heads(args, [&](const AttentionRows& rows, int row_head, std::size_t at) {
    float* q = scratch.q + static_cast<std::ptrdiff_t>(row_head) * kQueryStride;
    float* out = scratch.out + static_cast<std::ptrdiff_t>(row_head) * width;
    for (int i = 0; i < d; i += kLanes) {
      store(q + i, load_as<bf16>(rows.q, at + i, d - i < kLanes ? d - i : kLanes) * scale);
      store(out + i, set1(0.0F));
    }
  });
  for (int r = 0; r < row_heads; ++r) {
    scratch.max[r] = -__builtin_inff();
    scratch.total[r] = 0.0F;
  }

  Stretch stretch = shared_stretch(args);
  for (int s = 0, first_head = 0; s < args.count; ++s) {
    const Stretch own = own_stretch(args, args.sequences[s], first_head);
    walk<bf16>(args, scratch, stretch, &own);
    stretch = own;
    first_head += own.row_heads;
  }
  walk<bf16>(args, scratch, stretch, nullptr);

  for_row_heads(args, [&](const AttentionRows& rows, int row_head, std::size_t at) {
    const float* out = scratch.out + static_cast<std::ptrdiff_t>(row_head) * width;
    const F32 inverse = set1(1.0F) / set1(scratch.total[row_head]);
    for (int i = 0; i < d; i += kLanes) {
      // Adding +0 makes a zero positive: its sign could tell how many unseen positions were added.
      const F32 x = load(out + i) * inverse + set1(0.0F);
      store_as(rows.out, static_cast<std::ptrdiff_t>(at) + i, x, d - i < kLanes ? d - i : kLanes,
               bf16);
    }
  });
}

}  // namespace

void attention(const AttentionArgs& args) {
  if (args.bf16) {
    attend<true>(args);
  } else {
    attend<false>(args);
  }
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
