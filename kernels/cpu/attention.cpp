// Causal attention over a paged cache (layout: rope.cpp), all query heads of one kv head together,
// of rows of one sequence or several. What sequences have in common is walked once, with the row
// heads of all of them; then each walks its own positions. While a tile is computed with, the next
// one is fetched, be it another sequence's.
//
// Keys are walked in tiles of 64 absolute positions; within a tile every score is one chain of
// fused multiply-adds over the head, the softmax runs online from tile to tile, and every output
// lane is one chain over positions in ascending order. Every kAttentionSegment positions it begins
// anew, and what it came to is added to what there was. A position a row may not see has weight
// exactly 0, a tile it may not see scales its state by exactly 1 and a segment it may not see adds
// exactly 0, so a row's bits do not depend on the rows computed with it nor on the size of the
// blocks. On a branch of a tree, the groups of positions in which ancestors stand are first put
// together in order, as if there were no other branch; from there on nothing tells a tree from a
// chain.
//
// Where bf16 has a dot product that is faster than fused multiply-adds (PACELINE_SIMD_DOT), a chain
// goes from pair to pair. Queries are bf16 as they are, so scores lose nothing; weights are rounded
// to bf16, and what they sum to is the sum of the rounded ones, so that an output is still a mean
// of values. Elsewhere weights stay in fp32: rounding them would cost accuracy and save nothing.
//
// A head is a multiple of 8 elements. Where it is none of 16, its last vector is half of one, whose
// other lanes are zero in registers and in scratch memory; in the cache they are not there.
#include "kernels/cpu/attention_positions.hpp"
#include "kernels/cpu/attention_state.hpp"
#include "kernels/cpu/parts.hpp"
#include "kernels/cpu/simd_bf16.hpp"
#include "kernels/cpu/simd_math.hpp"
#include "kernels/cpu/tile.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {
namespace {

constexpr std::ptrdiff_t kLine = 64;  // bytes of a cache line

/// Whether queries and weights are pairs of bf16, as K and V are.
#if defined(PACELINE_SIMD_DOT)
template <bool bf16>
constexpr bool kDots = bf16;
#else
template <bool bf16>
constexpr bool kDots = false;
#endif

struct Scratch {
  float* q;       // [row heads][kQueryStride]: times args.scale in fp32, or as they are in bf16
  State segment;  // that is walked
  State before;   // all segments before it
  float* scores;  // [rows of a row tile][kTile]: scores, then weights, which are bf16 in dots
  float* alpha;   // [rows of a row tile] what the tile scales the accumulators by
  float* tail;    // [16][head_dim] the last group of V, zero past the last position
  float* branch;  // K, then V of the positions of a path from its first group on, as one block
};

/// What a head's visit to a tile prefetches, line by line: V of a group each while it scores, then
/// K of a group each while it accumulates.
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
  if constexpr (kDots<bf16>) {
#if defined(PACELINE_SIMD_DOT)
    multiply_dots<MR, NV, kQueryStride, 1, Prefetch::each>(
        tile, reinterpret_cast<const std::uint32_t*>(q), b, block, args.head_dim / 2, ahead);
#endif
    const F32 scale = set1(args.scale);
    PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
      PACELINE_UNROLL for (int v = 0; v < NV; ++v) tile.at[r][v] = tile.at[r][v] * scale;
    }
  } else if constexpr (bf16) {
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
    if constexpr (kDots<bf16>) {
#if defined(PACELINE_SIMD_DOT)
      const auto* pairs = reinterpret_cast<const std::uint32_t*>(weights) + g * kLanes / 2;
      multiply_dots<MR, NV, kTile, 1, Prefetch::each, kHalf>(tile, pairs, b, d, kSteps, ahead);
#endif
    } else if constexpr (bf16) {
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
template <bool bf16, int MR>
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
    }
    if constexpr (kDots<bf16>) {
#if defined(PACELINE_SIMD_DOT)
      PACELINE_UNROLL for (int g = 0; g < kGroups; g += 2) {
        const U32 pairs = to_pairs(w[g], w[g + 1]);
        store(reinterpret_cast<std::uint32_t*>(s) + g * kLanes / 2, pairs);
        w[g] = first_of(pairs);
        w[g + 1] = second_of(pairs);
      }
#endif
    } else {
      PACELINE_UNROLL for (int g = 0; g < kGroups; ++g) store(s + g * kLanes, w[g]);
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
#define PACELINE_CASE(MR)                                                                  \
  case MR:                                                                                 \
    if constexpr (MR <= kMaxTileRows) {                                                    \
      return {&score_tile<bf16, MR>, &softmax_step<bf16, MR>, &accumulate_tile<bf16, MR>}; \
    }                                                                                      \
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

/// What a visit to a kv head of a tile fetches: its own V while it scores, and K of the visit that
/// comes next while it accumulates. That is soon enough; of what is fetched further ahead, part is
/// gone or was never fetched when it is needed, for a core has so many lines under way and no more
/// (measured: a tile of all heads ahead takes up to 12 % longer).
PACELINE_INLINE Fetch fetch_of(const AttentionArgs& args, const Groups& v, const Groups& next_k) {
  Fetch fetch;
  for (int g = 0; g < kGroups; ++g) {
    fetch.at[g] = {v.v[g], kLine};
    fetch.at[kGroups + g] = {next_k.k[g], std::ptrdiff_t{4} * args.block};
  }
  return fetch;
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
void visit_tile(const AttentionArgs& args, const Scratch& scratch, const State& state,
                const Stretch& stretch, int start, int head, const Visit& visit,
                const Fetch& fetch) {
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
    run.soften(scratch.scores, state.max + first, state.total + first, scratch.alpha);
    run.accumulate(args, scratch.scores, scratch.alpha, visit.tile, ahead + kGroups, visit.groups,
                   state.out + static_cast<std::ptrdiff_t>(first) * width);
    of_stretch += rows;
    ahead = nothing.at;
  }
}

/// Where the state of the segment of `position` goes.
PACELINE_INLINE State state_of(const AttentionArgs& args, int position) {
  const int row_heads = args.heads * args.row_heads;
  const int width = whole_vectors(args.head_dim);
  const std::ptrdiff_t segment = (position - args.first) / kAttentionSegment;
  return state_at(args.states + segment * row_heads * (width + 2), row_heads, width);
}

/// The row heads of a stretch come to the end of a segment and to the next.
void begin_segment(const AttentionArgs& args, const Scratch& scratch, const Stretch& stretch) {
  if (args.states != nullptr) return;  // each has its own
  const int width = whole_vectors(args.head_dim);
  for (int head = 0; head < args.heads; ++head) {
    const int first = head * args.row_heads + stretch.first_head;
    add(scratch.segment, scratch.before, first, stretch.row_heads, width);
    begin(scratch.segment, first, stretch.row_heads, width);
  }
}

/// Takes the row heads of a stretch through its tiles. `after`: the stretch that comes next, if
/// any.
template <bool bf16>
void walk(const AttentionArgs& args, const Scratch& scratch, const Stretch& stretch,
          const Stretch* after) {
  const int d = args.head_dim;
  Branch branch;
  if (stretch.path != nullptr && stretch.end > stretch.in_cache)
    branch = gather_branch(args, stretch, scratch.branch);
  Groups next;  // where there is no group, some place that may be fetched
  for (int g = 0; g < kGroups; ++g) next.k[g] = next.v[g] = args.cache;
  find_groups(args, stretch, stretch.begin, next);
  for (int start = stretch.begin; start < stretch.end; start += kTile) {
    if (start % kAttentionSegment == 0 && start > args.first) begin_segment(args, scratch, stretch);
    const State state = args.states == nullptr ? scratch.segment : state_of(args, start);
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
      const Groups in_cache = of_head(args, tile, head);
      visit.tile = in_cache;
      for (int g = visit.in_cache; g < visit.groups; ++g) {
        const std::size_t at = start + g * kLanes - branch.first;
        const std::byte* k = branch.data + 2 * head * branch.k_bytes;
        visit.tile.k[g] = k + at * 4;
        visit.tile.v[g] = k + branch.k_bytes + at * d * (bf16 ? 2 : 4);
      }
      if (left < visit.groups * kLanes) {
        const std::byte*& last = visit.tile.v[visit.groups - 1];
        copy_tail<bf16>(last, left - (visit.groups - 1) * kLanes, d, scratch.tail);
        last = reinterpret_cast<const std::byte*>(scratch.tail);
      }
      const bool last = head + 1 == args.heads;
      const Fetch fetch = fetch_of(args, in_cache, last ? next : of_head(args, tile, head + 1));
      visit_tile<bf16>(args, scratch, state, stretch, start, head, visit, fetch);
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

/// What the softmax comes to.
template <bool bf16>
void write_out(const AttentionArgs& args, const State& state) {
  const int d = args.head_dim;
  const int width = whole_vectors(d);
  for_row_heads(args, [&](const AttentionRows& rows, int row_head, std::size_t at) {
    const float* out = state.out + static_cast<std::ptrdiff_t>(row_head) * width;
    const F32 inverse = set1(1.0F) / set1(state.total[row_head]);
    for (int i = 0; i < d; i += kLanes) {
      // Adding +0 makes a zero positive: its sign could tell how many unseen positions were added.
      const F32 x = load(out + i) * inverse + set1(0.0F);
      store_as(rows.out, static_cast<std::ptrdiff_t>(at) + i, x, d - i < kLanes ? d - i : kLanes,
               bf16);
    }
  });
}

template <bool bf16>
void attend(const AttentionArgs& args) {
  const int d = args.head_dim;
  const int width = whole_vectors(d);
  const int row_heads = args.heads * args.row_heads;
  const auto state_floats = static_cast<std::ptrdiff_t>(row_heads) * (width + 2);
  Scratch scratch;
  scratch.q = args.scratch;
  float* states = scratch.q + static_cast<std::ptrdiff_t>(row_heads) * kQueryStride;
  scratch.segment = state_at(states, row_heads, width);
  scratch.before = state_at(states + state_floats, row_heads, width);
  scratch.scores = states + 2 * state_floats;
  scratch.alpha = scratch.scores + kLanes * kTile;
  scratch.tail = scratch.alpha + kLanes;
  scratch.tail += (16 - (reinterpret_cast<std::uintptr_t>(scratch.tail) / 4) % 16) % 16;
  scratch.branch = scratch.tail + static_cast<std::ptrdiff_t>(kLanes) * d;

  const F32 scale = set1(args.scale);
  for_row_heads(args, [&](const AttentionRows& rows, int row_head, std::size_t at) {
    float* q = scratch.q + static_cast<std::ptrdiff_t>(row_head) * kQueryStride;
    if constexpr (kDots<bf16>) {
      __builtin_memcpy(q, rows.q + at * 2, static_cast<std::size_t>(d) * 2);
    } else {
      for (int i = 0; i < d; i += kLanes)
        store(q + i, load_as<bf16>(rows.q, at + i, d - i < kLanes ? d - i : kLanes) * scale);
    }
  });
  begin(scratch.segment, 0, row_heads, width);
  begin(scratch.before, 0, row_heads, width);
  for (int i = 0; i < args.segments; ++i)
    begin(state_of(args, args.first + i * kAttentionSegment), 0, row_heads, width);

  Stretch stretch = shared_stretch(args);
  for (int s = 0, first_head = 0; s < args.count; ++s) {
    const Stretch own = own_stretch(args, args.sequences[s], first_head);
    walk<bf16>(args, scratch, stretch, &own);
    stretch = own;
    first_head += own.row_heads;
  }
  walk<bf16>(args, scratch, stretch, nullptr);
  if (args.states != nullptr) return;
  add(scratch.segment, scratch.before, 0, row_heads, width);
  write_out<bf16>(args, scratch.before);
}

}  // namespace

void attention(const AttentionArgs& args) {
  if (args.bf16) {
    attend<true>(args);
  } else {
    attend<false>(args);
  }
}

void attention_sum(const AttentionArgs& args) {
  const int width = whole_vectors(args.head_dim);
  const int row_heads = args.heads * args.row_heads;
  const State before = state_at(args.scratch, row_heads, width);
  begin(before, 0, row_heads, width);
  for (int i = 0; i < args.segments; ++i)
    add(state_of(args, i * kAttentionSegment), before, 0, row_heads, width);
  if (args.bf16) {
    write_out<true>(args, before);
  } else {
    write_out<false>(args, before);
  }
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
