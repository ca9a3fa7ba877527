// Attention over a paged cache (layout: rope.cpp), for rows of one sequence or several. It is
// causal unless a chain's rows all see the same positions (Segment::seen). All query heads of one
// kv head are computed together; a row head is a row and a query head. A common prefix is walked
// once, with the row heads of all sequences; then each sequence's row heads walk its own positions.
// While a tile is used, the next one is prefetched, even if it is another sequence's.
//
// Keys are walked in tiles of 64 absolute positions. Within a tile every score is one chain of
// fused multiply-adds over the head, the softmax runs online from tile to tile, and every output
// lane is one chain over positions in ascending order. The state begins anew every
// kAttentionSegment positions, and the segments' states are added in order. A position that a row
// may not see has weight exactly 0; a tile without visible positions scales the state by exactly 1,
// and a segment without any adds exactly 0. So a row's bits depend neither on the rows computed
// with it nor on the size of the blocks. On a branch of a tree, the groups of positions that hold
// ancestors are first gathered in order, as if there were no other branch; the computation is then
// the same as for a chain.
//
// Where bf16 has a dot product that is faster than fused multiply-adds (PACELINE_SIMD_DOT), a chain
// goes from pair to pair. Where there is a tile unit (attention_tiles.hpp), it goes from step to
// step of the unit, if heads consist of whole steps. Queries are bf16 already, so scores lose
// nothing; weights are rounded to bf16. Elsewhere weights stay in fp32: rounding them would cost
// accuracy and save nothing.
//
// Latent vectors (attention_latent.hpp) are laid out tile by tile as K and V of one kv head, and
// then treated like any other head.
//
// A head is a multiple of 8 elements. Where it is no multiple of 16, the last vector is half used:
// its other lanes are zero in registers and in scratch memory, and absent in the cache.
#include <utility>

#include "kernels/cpu/attention_latent.hpp"
#include "kernels/cpu/attention_positions.hpp"
#include "kernels/cpu/attention_softmax.hpp"
#include "kernels/cpu/attention_state.hpp"
#include "kernels/cpu/attention_vectors.hpp"
#include "kernels/cpu/parts.hpp"
#include "kernels/cpu/simd_bf16.hpp"
#include "kernels/cpu/simd_math.hpp"
#if defined(PACELINE_SIMD_AMX)
#include "kernels/cpu/attention_tiles.hpp"
#endif

namespace paceline::kernels::cpu::PACELINE_ISA {
namespace {

constexpr std::ptrdiff_t kLine = 64;  // bytes of a cache line

struct Scratch {
  float* q;       // [row heads + 16][kQueryStride]: fp32 times args.scale, or bf16 unscaled
  State segment;  // the segment being walked
  State before;   // all segments before it
  float* scores;  // [kRowTilesAbreast][16 rows][kTile]: scores, then weights (softmax_step())
  float* alpha;   // [kRowTilesAbreast][16 rows] factor of the accumulators for the tile
  float* tail;    // [16][value_dim] the last group of V, zero past the last position
  float* values;  // [kTile / 2][value_dim] V of a tile whose groups are joined
  float* branch;  // K, then V of a path's positions from its first group on, or of a tile's latent
                  // vectors, as one block
};

/// Functions for row tiles of one size. On the tile unit they advance the cursors of Fetch.
struct TileFunctions {
  void (*score)(const AttentionArgs&, const float*, const Groups&, Fetch&, int, int, int, float*);
  void (*soften)(float*, float, float*, float*, float*, Fetch&);
  void (*accumulate)(const AttentionArgs&, const float*, const float*, const Groups&, Fetch&, int,
                     float*);
};

/// Most row heads of a row tile. Where registers hold few, a row tile has twice as many as they
/// hold: groups of 7 query heads, which are common, take 15 % less time than in two row tiles
/// (measured, AVX2).
template <Way way>
constexpr int kMostRows = way == Way::tiles            ? kLanes
                          : 2 * kMaxTileRows <= kLanes ? 2 * kMaxTileRows
                                                       : kMaxTileRows;

template <Way way>
PACELINE_INLINE int row_tiles_of(const Stretch& stretch) {
  return (stretch.row_heads + kMostRows<way> - 1) / kMostRows<way>;
}

template <Way way, int MR>
constexpr TileFunctions tile_functions() {
#if defined(PACELINE_SIMD_AMX)
  if constexpr (way == Way::tiles)
    return {&score_in_tiles, &softmax_step<way, MR>, &accumulate_in_tiles<MR>};
#endif
  return {&score_tile<way, MR>, &softmax_step<way, MR>, &accumulate_tile<way, MR>};
}

/// `n`: one less than each number of rows.
template <Way way, int... n>
TileFunctions tile_functions(int rows, std::integer_sequence<int, n...> /*n*/) {
  constexpr TileFunctions all[] = {tile_functions<way, n + 1>()...};
  return all[rows - 1];
}

template <Way way>
TileFunctions tile_functions(int rows) {
  if (rows < 1 || rows > kMostRows<way>) __builtin_trap();
  return tile_functions<way>(rows, std::make_integer_sequence<int, kMostRows<way>>());
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

/// Copies the first `valid` positions of a group of V, then zeros: memory past the last position
/// may hold anything, and 0 times a NaN is a NaN. `to`: [16][d].
template <bool bf16>
PACELINE_INLINE void copy_tail(const std::byte* v, int valid, int d, float* to) {
  // `words` are [16][d] fp32, or [8][d] pairs of bf16 with the earlier position in the lower half.
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

/// Prefetches of the visits of `row_tiles` row tiles to a kv head of a tile. `next`: the groups of
/// the visit after these.
///
/// A single row tile fetches its own V while it scores, and K of the next visit while it
/// accumulates; without a tile unit the first of several row tiles does the same. This is early
/// enough: some lines fetched further ahead are evicted, or dropped because a core can have only a
/// limited number of lines under way (measured: one tile of all heads ahead takes up to 12 %
/// longer). But the tile unit finishes a row tile before its V is there, so several row tiles share
/// the prefetching of the whole next visit (verification takes up to 20 % less time).
template <Way way>
PACELINE_INLINE Fetch fetch_of(const AttentionArgs& args, const Groups& tile, const Groups& next,
                               int row_tiles) {
  const Groups& values = way == Way::tiles && row_tiles > 1 ? next : tile;
  Fetch fetch;
  if (args.latent) {  // lay_tile() has read the vectors, or will read them in one piece
    for (int g = 0; g < kGroups; ++g) fetch.values[g] = fetch.keys[g] = {args.cache, 0};
    return fetch;
  }
  for (int g = 0; g < kGroups; ++g) {
    fetch.values[g] = {values.v[g], kLine};
    fetch.keys[g] = {next.k[g], std::ptrdiff_t{4} * args.block};
  }
#if defined(PACELINE_SIMD_AMX)
  if constexpr (way == Way::tiles) share_out(fetch, args.head_dim, row_tiles);
#endif
  return fetch;
}

/// One kv head of a tile: its groups, their number, and how many of them are in the cache.
struct Visit {
  Groups tile;
  int groups, in_cache;
  int branch_size;  ///< positions of the block that holds the other groups
};

/// Number of row tiles that take each step together. With heads of 128 elements the first-level
/// cache cannot hold K and V of a tile and a row tile's other data. If two row tiles first use K
/// while it is cached, and then V, attention takes 5 % less time. With heads of 64 the cache holds
/// everything, and scores of a second row tile only take room: attention takes up to 10 % longer
/// (measured; sizes in between were not).
template <Way way>
PACELINE_INLINE int row_tiles_abreast(const AttentionArgs& args) {
  return way == Way::tiles && args.head_dim >= 128 ? kRowTilesAbreast : 1;
}

/// A row tile's part of a visit.
struct RowTile {
  TileFunctions run;
  int first;  ///< first row head
  float *scores, *alpha;
};

/// Takes the row heads of a stretch through one kv head of the tile that begins at position
/// `start`.
template <Way way>
void visit_tile(const AttentionArgs& args, const Scratch& scratch, const State& state,
                const Stretch& stretch, int start, int head, Visit visit, Fetch fetch) {
  const int width = whole_vectors(args.value_dim);
  const int row_tiles = row_tiles_of<way>(stretch);
  const int base_rows = stretch.row_heads / row_tiles;
  const int larger = stretch.row_heads % row_tiles;
  const bool all_seen =
      start + kTile <= (stretch.seen > 0 ? stretch.seen : stretch.first_position + 1);
  const int most_abreast = row_tiles_abreast<way>(args);
  for (int t = 0, of_stretch = 0; t < row_tiles;) {
    RowTile abreast[kRowTilesAbreast];
    int count = 0;
    for (; count < most_abreast && t < row_tiles; ++count, ++t) {
      const int rows = base_rows + (t < larger ? 1 : 0);
      RowTile& row_tile = abreast[count];
      row_tile = {tile_functions<way>(rows),
                  head * args.row_heads + stretch.first_head + of_stretch,
                  scratch.scores + count * kLanes * kTile, scratch.alpha + count * kLanes};
      const float* q = scratch.q + static_cast<std::ptrdiff_t>(row_tile.first) * kQueryStride;
      row_tile.run.score(args, q, visit.tile, fetch, 0, visit.in_cache, args.block,
                         row_tile.scores);
      row_tile.run.score(args, q, visit.tile, fetch, visit.in_cache, visit.groups,
                         visit.branch_size, row_tile.scores);
      if (!all_seen) {
        int visible[kLanes];
        for (int r = 0; r < rows; ++r) {
          const int own = stretch.first_position + (of_stretch + r) / args.group;
          visible[r] = (stretch.seen > 0 ? stretch.seen : own + 1) - start;
        }
        hide(row_tile.scores, rows, visible);
      }
      of_stretch += rows;
    }
    for (int i = 0; i < count; ++i) {
      const RowTile& row_tile = abreast[i];
      row_tile.run.soften(row_tile.scores, args.scale, state.max + row_tile.first,
                          state.total + row_tile.first, row_tile.alpha, fetch);
    }
#if defined(PACELINE_SIMD_AMX)
    // The first row tiles, which have fetched V by now, join its groups; the others find them
    // joined.
    if (way == Way::tiles && t == count) {
      join_values(visit.tile, visit.groups, args.value_dim,
                  reinterpret_cast<std::uint32_t*>(scratch.values));
    }
#endif
    for (int i = 0; i < count; ++i) {
      const RowTile& row_tile = abreast[i];
      row_tile.run.accumulate(args, row_tile.scores, row_tile.alpha, visit.tile, fetch,
                              visit.groups,
                              state.out + static_cast<std::ptrdiff_t>(row_tile.first) * width);
    }
    if constexpr (way != Way::tiles) {  // for the other row tiles nothing is left to fetch
      for (Ahead& ahead : fetch.values) ahead.step = 0;
      for (Ahead& ahead : fetch.keys) ahead.step = 0;
    }
  }
}

/// The state for the segment of `position`, in args.states.
PACELINE_INLINE State state_of(const AttentionArgs& args, int position) {
  const int segment = (position - args.first) / kAttentionSegment;
  return state_at(
      args.states + segment * attention_state_floats(args.heads, args.row_heads, args.value_dim),
      args.heads * args.row_heads, whole_vectors(args.value_dim));
}

/// Takes the row heads of a stretch to the next segment: adds the state of the segment that ends.
void begin_segment(const AttentionArgs& args, const Scratch& scratch, const Stretch& stretch) {
  if (args.states != nullptr) return;  // each segment has its own state
  const int width = whole_vectors(args.value_dim);
  for (int head = 0; head < args.heads; ++head) {
    const int first = head * args.row_heads + stretch.first_head;
    add(scratch.segment, scratch.before, first, stretch.row_heads, width);
    begin(scratch.segment, first, stretch.row_heads, width);
  }
}

/// Takes the row heads of a stretch through its tiles. `after`: the stretch that comes next, if
/// any.
template <Way way>
void walk(const AttentionArgs& args, const Scratch& scratch, const Stretch& stretch,
          const Stretch* after) {
  const int d = args.value_dim;
#if defined(PACELINE_SIMD_AMX)
  if (way == Way::tiles && stretch.begin < stretch.end) {
    // Tiles have as many rows as the largest row tile: the unit's time depends on the number of
    // rows.
    const int row_tiles = row_tiles_of<way>(stretch);
    const int rows = (stretch.row_heads + row_tiles - 1) / row_tiles;
    configure_tiles(rows, rows);
  }
#endif
  Branch branch;
  if (!args.latent && stretch.path != nullptr && stretch.end > stretch.in_cache)
    branch = gather_branch(args, stretch, scratch.branch);
  Groups next;  // missing groups point to any valid address
  for (int g = 0; g < kGroups; ++g) next.k[g] = next.v[g] = args.cache;
  find_groups(args, stretch, stretch.begin, next);
  for (int start = stretch.begin; start < stretch.end; start += kTile) {
    if (start % kAttentionSegment == 0 && start > args.first) begin_segment(args, scratch, stretch);
    const State state = args.states == nullptr ? scratch.segment : state_of(args, start);
    const int left = stretch.end - start;
    const Groups tile = next;
    // Where no tile comes next, `next` stays, and its lines are in the cache already.
    if (left > kTile) {
      find_groups(args, stretch, start + kTile, next);
    } else if (after != nullptr) {
      find_groups(args, *after, after->begin, next);
    }
    if (args.latent) branch = lay_tile(args, stretch, start, scratch.branch);
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
        visit.tile.v[g] = k + branch.k_bytes + at * d * (kBf16<way> ? 2 : 4);
      }
      if (left < visit.groups * kLanes) {
        const std::byte*& last = visit.tile.v[visit.groups - 1];
        copy_tail<kBf16<way>>(last, left - (visit.groups - 1) * kLanes, d, scratch.tail);
        last = reinterpret_cast<const std::byte*>(scratch.tail);
      }
      const bool last = head + 1 == args.heads;
      const Fetch fetch = fetch_of<way>(args, in_cache, last ? next : of_head(args, tile, head + 1),
                                        row_tiles_of<way>(stretch));
      visit_tile<way>(args, scratch, state, stretch, start, head, visit, fetch);
    }
  }
}

/// Calls f(rows, row head, row, query head) for all row heads, in their order in scratch memory.
template <class F>
PACELINE_INLINE void for_row_heads(const AttentionArgs& args, F&& f) {
  int row_head = 0;
  for (int head = 0; head < args.heads; ++head) {
    for (int s = 0; s < args.count; ++s) {
      const AttentionRows& rows = args.sequences[s];
      for (int r = 0; r < rows.rows * args.group; ++r) {
        f(rows, row_head++, r / args.group, head * args.group + r % args.group);
      }
    }
  }
}

/// Writes the softmax's result.
template <bool bf16>
void write_out(const AttentionArgs& args, const State& state) {
  const int d = args.out_dim;
  const int width = whole_vectors(args.value_dim);
  for_row_heads(args, [&](const AttentionRows& rows, int row_head, int row, int head) {
    const std::size_t at = row * args.out.row + head * args.out.head;
    const float* out = state.out + static_cast<std::ptrdiff_t>(row_head) * width;
    const F32 inverse = set1(1.0F) / set1(state.total[row_head]);
    for (int i = 0; i < d; i += kLanes) {
      // Adding +0 makes a zero positive: its sign could depend on how many unseen positions were
      // added.
      const F32 x = load(out + i) * inverse + set1(0.0F);
      store_as(rows.out, static_cast<std::ptrdiff_t>(at) + i, x, d - i < kLanes ? d - i : kLanes,
               bf16);
    }
  });
}

template <Way way>
void attend(const AttentionArgs& args) {
  const int d = args.head_dim;
  const int width = whole_vectors(args.value_dim);
  const int row_heads = args.heads * args.row_heads;
  const std::size_t state_floats =
      attention_state_floats(args.heads, args.row_heads, args.value_dim);
  Scratch scratch;
  scratch.q = args.scratch;
  float* states = scratch.q + static_cast<std::ptrdiff_t>(row_heads) * kQueryStride;
  scratch.segment = state_at(states, row_heads, width);
  scratch.before = state_at(states + state_floats, row_heads, width);
  scratch.scores = states + 2 * state_floats;
  scratch.alpha = scratch.scores + kRowTilesAbreast * kLanes * kTile;
  scratch.tail = scratch.alpha + kRowTilesAbreast * kLanes;
  scratch.values = scratch.tail + static_cast<std::ptrdiff_t>(kLanes) * args.value_dim;
  scratch.branch = scratch.values + static_cast<std::ptrdiff_t>(kTile / 2) * args.value_dim;

  const F32 scale = set1(args.scale);
  for_row_heads(args, [&](const AttentionRows& rows, int row_head, int row, int head) {
    const std::size_t at = row * args.q.row + head * args.q.head;
    float* q = scratch.q + static_cast<std::ptrdiff_t>(row_head) * kQueryStride;
    if constexpr (kPaired<way>) {
      __builtin_memcpy(q, rows.q + at * 2, static_cast<std::size_t>(d) * 2);
    } else {
      for (int i = 0; i < d; i += kLanes)
        store(q + i, load_as<kBf16<way>>(rows.q, at + i, d - i < kLanes ? d - i : kLanes) * scale);
    }
  });
  begin(scratch.segment, 0, row_heads, width);
  begin(scratch.before, 0, row_heads, width);
  for (int i = 0; i < args.segments; ++i)
    begin(state_of(args, args.first + i * kAttentionSegment), 0, row_heads, width);

  Stretch stretch = shared_stretch(args);
  for (int s = 0, first_head = 0; s < args.count; ++s) {
    const Stretch own = own_stretch(args, args.sequences[s], first_head);
    walk<way>(args, scratch, stretch, &own);
    stretch = own;
    first_head += own.row_heads;
  }
  walk<way>(args, scratch, stretch, nullptr);
  if (args.states != nullptr) return;
  add(scratch.segment, scratch.before, 0, row_heads, width);
  write_out<kBf16<way>>(args, scratch.before);
}

}  // namespace

void attention(const AttentionArgs& args) {
  if (!args.bf16) return attend<Way::singles>(args);
#if defined(PACELINE_SIMD_AMX)
  if (args.head_dim % kStepElements == 0 && args.value_dim % kStepElements == 0)
    return attend<Way::tiles>(args);
#endif
#if defined(PACELINE_SIMD_DOT)
  return attend<Way::dots>(args);
#else
  return attend<Way::widened>(args);
#endif
}

void attention_sum(const AttentionArgs& args) {
  const int width = whole_vectors(args.value_dim);
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
