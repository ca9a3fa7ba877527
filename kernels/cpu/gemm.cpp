// Matrix products with packed weights. See tile.hpp for the arithmetic.
//
// A weight panel (32 outputs x K) is streamed from memory once and used for every row block before
// the next panel. It is used whole or, where registers hold half its width, by some steps of K at a
// time, which stay in the first-level cache. The rows, widened to fp32 and interleaved by block,
// stay in the caches. With few rows two panels are used side by side, because one would give too
// few chains of additions to keep the multipliers busy.
#include <utility>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/parts.hpp"
#include "kernels/cpu/simd_bf16.hpp"
#include "kernels/cpu/tile.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {
namespace {

constexpr int kVectorsPerPanel = kPanelWidth / kLanes;

struct Block {
  int first, rows;
};

/// Rows of a row block; larger blocks come first.
Block row_block(const LinearArgs& args, int index) {
  const int base = args.rows / args.row_blocks;
  const int larger = args.rows % args.row_blocks;
  if (index < larger) return {index * (base + 1), base + 1};
  return {index * base + larger, base};
}

/// Steps [first, last) of K, all in one segment.
struct Steps {
  int first, last;
  int segment;
  bool begin, end;  ///< at the beginning, at the end of the segment
};

/// A product's share of the data after its steps, which it prefetches: index of the share, and its
/// bytes for each step.
struct Share {
  int index;
  std::ptrdiff_t bytes;
};

/// Format of a product's weights.
enum class Weight { f32, bf16 };

/// 32-bit words of a row in the packed input.
template <Weight weight>
constexpr int packed_words(int k) {
#if defined(PACELINE_SIMD_DOT)
  return weight == Weight::bf16 ? k / 2 : k;
#else
  return k;
#endif
}

/// Loads a tile from memory: [MR][NV][kLanes].
template <int MR, int NV>
PACELINE_INLINE Tile<MR, NV> load_tile(const float* from) {
  Tile<MR, NV> tile;
  PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) tile.at[r][v] = load(from + (r * NV + v) * kLanes);
  }
  return tile;
}

template <int MR, int NV>
PACELINE_INLINE void store_tile(float* to, const Tile<MR, NV>& tile) {
  PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
    PACELINE_UNROLL for (int v = 0; v < NV; ++v) store(to + (r * NV + v) * kLanes, tile.at[r][v]);
  }
}

/// Number of steps of K: pairs of bf16, or single fp32 elements.
template <Weight weight>
int steps_of(const LinearArgs& args) {
  return weight == Weight::bf16 ? args.k / 2 : args.k;
}

/// Floats of the largest tile in memory.
constexpr std::ptrdiff_t kTileFloats = kMaxTileRows * kTileVectors * kLanes;

/// Number of tiles in memory for the sums of a tile of outputs. One is its own sum between calls,
/// each of which takes some of the steps. The others are, for each level of the tree, the sum of a
/// K-segment that waits for its neighbour.
constexpr int tiles_of_sums(int segments) {
  int tiles = 1;
  while (1 << (tiles - 1) < segments) ++tiles;
  return tiles;
}

/// Adds the sums that wait for a segment's sum, and returns the place where the result would wait.
template <int MR, int NV>
PACELINE_INLINE float* add_waiting(float* waiting, Tile<MR, NV>& tile, int segment) {
  for (; (segment & 1) != 0; segment >>= 1, waiting += kTileFloats) {
    const Tile<MR, NV> before = load_tile<MR, NV>(waiting);
    PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
      PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
        tile.at[r][v] = before.at[r][v] + tile.at[r][v];
      }
    }
  }
  return waiting;
}

template <int MR, int NV>
PACELINE_INLINE void finish(const LinearArgs& args, Tile<MR, NV>& tile, int row, int column) {
  PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
    const int c = column + v * kLanes;
    const int count = args.n - c < kLanes ? args.n - c : kLanes;
    if (count <= 0) continue;
    if (args.bias != nullptr) {
      const F32 bias = load_part(args.bias + c, count);
      PACELINE_UNROLL for (int r = 0; r < MR; ++r) tile.at[r][v] = tile.at[r][v] + bias;
    }
    float* out = args.out + row * args.out_stride + (c - args.first_column);
    if (count == kLanes) {
      PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
        store(out + r * args.out_stride, tile.at[r][v]);
      }
    } else {
      PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
        store_part(out + r * args.out_stride, tile.at[r][v], count);
      }
    }
  }
}

/// Steps that all row blocks take before the next steps. Where a tile is as wide as a panel, all
/// steps are taken at once. Where it is narrower, each block reads a step's weights more than once.
/// So weights and rows should stay in the first-level cache, and prefetches should come in order: 8
/// KB of weights. (With all steps at once 4 to 6 rows take 1.4 times as long, 8 to 12 rows 1.2
/// times; with 16 KB 8 to 16 rows take 1.1 times as long.)
constexpr int kStepsTogether = kTileVectors < kVectorsPerPanel ? 64 : 1 << 30;
/// Number of steps by which prefetching is ahead of the next steps. Where few steps are taken at
/// once, data is not always there in time: 8 to 32 rows take 2 to 5 % longer with 0 (measured).
constexpr int kFurther = kTileVectors < kVectorsPerPanel ? 32 : 0;

/// Computes NV vectors of outputs from vector `first_vector` of the matrix on, for MR rows from
/// `row` on, over some of the steps of K: calls take the steps in order, and the last call writes
/// the outputs. `sums`: tiles_of_sums() tiles, kept from call to call.
///
/// A call is short, as a tile has few rows, so it has no divisions and few branches: divisions
/// alone took 4 % of the time of all products (measured, AVX2). Not inlined: otherwise 4 rows,
/// which wait for memory, take a fifth longer (measured; no cause was found).
template <Weight format, int MR, int NV, Prefetch kPrefetch>
[[gnu::noinline]] void product(const LinearArgs& args, int first_vector, int row,
                               const Steps& steps, Share share, float* sums) {
  constexpr bool kPairs = format == Weight::bf16;
  const int all_steps = steps_of<format>(args);
  // Weights in 32-bit words: a word is a pair of bf16 or one fp32.
  const auto panel_at = [&](int vector, std::ptrdiff_t step) {
    return reinterpret_cast<const std::uint32_t*>(args.weight) +
           (std::ptrdiff_t{all_steps} * (vector / kVectorsPerPanel) + step) * kPanelWidth;
  };
  const std::uint32_t* b[NV];
  PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
    const int vector = first_vector + v;
    b[v] = panel_at(vector, steps.first) + vector % kVectorsPerPanel * kLanes;
  }
  constexpr std::ptrdiff_t kStepWords = packed_words<format>(kPairs ? 2 : 1) * MR;
  const auto* a = reinterpret_cast<const std::uint32_t*>(args.packed) +
                  static_cast<std::ptrdiff_t>(row) * packed_words<format>(args.k) +
                  steps.first * kStepWords;
  const int count = steps.last - steps.first;
  Ahead ahead;
  ahead.step = share.bytes;
  ahead.next = reinterpret_cast<const std::byte*>(panel_at(first_vector, steps.last + kFurther)) +
               share.index * share.bytes * count;

  Tile<MR, NV> tile;
  if (steps.begin) {
    clear(tile);
  } else {
    tile = load_tile<MR, NV>(sums);
  }
  if constexpr (!kPairs) {
    multiply_singles<MR, NV, 1, MR, kPrefetch>(tile, reinterpret_cast<const float*>(a), b,
                                               kPanelWidth, count, &ahead);
  } else {
#if defined(PACELINE_SIMD_DOT)
    multiply_dots<MR, NV, 1, MR, kPrefetch>(tile, a, b, kPanelWidth, count, &ahead);
#else
    multiply_pairs<MR, NV, 1, MR, kPrefetch>(tile, reinterpret_cast<const float*>(a), b,
                                             kPanelWidth, count, &ahead);
#endif
  }
  if (!steps.end) {
    store_tile(sums, tile);
    return;
  }
  float* waiting = add_waiting(sums + kTileFloats, tile, steps.segment);
  if (steps.last < all_steps) {
    store_tile(waiting, tile);
  } else {
    finish(args, tile, row, first_vector * kLanes);
  }
}

/// Number of vectors side by side for a row block: enough accumulators to hide the latency of
/// addition.
constexpr int wide_vectors(int rows) {
#if defined(PACELINE_SIMD_AVX512)
  return rows <= 3 ? 4 : 2;
#elif defined(PACELINE_SIMD_AVX2)
  return rows == 1 ? 4 : rows == 2 ? 2 : 1;
#else
  return rows == 1 ? 2 : 1;
#endif
}

/// Computes NV vectors of outputs from vector `first_vector` on, for MR rows; reads weights in
/// order, once.
template <Weight format, int MR, int NV>
void stream_vectors(const LinearArgs& args, int first_vector, int row, float* sums) {
  const int of_segment = steps_of<format>(args) / args.segments;
  for (int segment = 0; segment < args.segments; ++segment) {
    const int first = segment * of_segment;
    product<format, MR, NV, Prefetch::same>(
        args, first_vector, row, {first, first + of_segment, segment, true, true}, {}, sums);
  }
}

/// Computes panels [first, last) for the only row block, of MR rows from `row` on.
template <Weight format, int MR>
void stream_panels(const LinearArgs& args, int first, int last, int row, float* sums) {
  constexpr int kWide = wide_vectors(MR);
  int vector = first * kVectorsPerPanel;
  const int end = last * kVectorsPerPanel;
  for (; vector + kWide <= end; vector += kWide) {
    stream_vectors<format, MR, kWide>(args, vector, row, sums);
  }
  if constexpr (kWide > kVectorsPerPanel) {
    for (; vector < end; vector += kVectorsPerPanel) {
      stream_vectors<format, MR, kVectorsPerPanel>(args, vector, row, sums);
    }
  }
}

/// Neighbouring row blocks of one size, among `together` blocks that take the same steps of a
/// panel.
struct Run {
  int first_row;
  int index, count;  ///< index and number of the blocks among `together`
  int together;
};

/// Takes row blocks of MR rows through some steps of a panel, which earlier products have
/// prefetched.
template <Weight format, int MR>
void panel_steps(const LinearArgs& args, int panel, Run run, const Steps& steps, float* sums) {
  constexpr int kWide = wide_vectors(MR);
  constexpr int kParts = kWide < kVectorsPerPanel ? kVectorsPerPanel / kWide : 1;
  constexpr int kVectors = kVectorsPerPanel / kParts;
  const std::ptrdiff_t of_tile = tiles_of_sums(args.segments) * kTileFloats;
  // Bytes are rounded up, so that the shares leave no gap. There are at least two shares, so that
  // each has at most one cache line in a step.
  const int shares = run.together * kParts;
  Share share = {run.index * kParts, (kPanelWidth * 4 + shares - 1) / shares};
  for (int i = 0; i < run.count; ++i) {
    for (int p = 0; p < kParts; ++p, ++share.index, sums += of_tile) {
      product<format, MR, kVectors, Prefetch::next>(args, panel * kVectorsPerPanel + p * kVectors,
                                                    run.first_row + i * MR, steps, share, sums);
    }
  }
}

/// Functions for row blocks of one size.
struct Functions {
  /// Null where a tile of so many rows is narrower than a panel: the panel then cannot be read in
  /// order.
  void (*stream_panels)(const LinearArgs&, int, int, int, float*);
  void (*panel_steps)(const LinearArgs&, int, Run, const Steps&, float*);
};

template <Weight format, int MR>
constexpr Functions functions() {
  if constexpr (wide_vectors(MR) < kVectorsPerPanel) return {nullptr, &panel_steps<format, MR>};
  return {&stream_panels<format, MR>, &panel_steps<format, MR>};
}

/// `n`: one less than each number of rows.
template <Weight format, int... n>
Functions functions_of(int rows, std::integer_sequence<int, n...> /*n*/) {
  constexpr Functions all[] = {functions<format, n + 1>()...};
  return all[rows - 1];
}

template <Weight format>
Functions functions_of(int rows) {
  if (rows < 1 || rows > kMaxTileRows) __builtin_trap();
  return functions_of<format>(rows, std::make_integer_sequence<int, kMaxTileRows>());
}

/// Interleaves the rows of a block into words[i][r], 16 elements of a row at a time.
template <class Load>
PACELINE_INLINE void interleave(std::uint32_t* words, int rows, int count, Load&& load_row) {
  for (int i = 0; i < count; i += kLanes) {
    const int lanes = count - i < kLanes ? count - i : kLanes;
    for (int r = 0; r < rows; ++r) {
      std::uint32_t row[kLanes];
      load_row(r, i, lanes, row);
      std::uint32_t* out = words + static_cast<std::ptrdiff_t>(i) * rows + r;
      for (int j = 0; j < lanes; ++j) out[static_cast<std::ptrdiff_t>(j) * rows] = row[j];
    }
  }
}

int first_row(const LinearArgs& args, int block) { return row_block(args, block).first; }

template <Weight format>
std::size_t packed_row_bytes(int k, int) {
  return static_cast<std::size_t>(packed_words<format>(k)) * 4;
}

/// Bytes of packed input that stay in the second-level cache while weight panels are streamed.
constexpr std::size_t kInputBytes = std::size_t{1} << 20;

/// fp32 values of scratch memory for the sums of a row block and a panel.
std::ptrdiff_t floats_of_sums(const LinearArgs& args) {
  return tiles_of_sums(args.segments) * kTileFloats * (kVectorsPerPanel / kTileVectors);
}

/// Blocking by the cache: as many row blocks as it holds. A single block takes several panels
/// together.
template <Weight format>
Blocking blocking(const LinearArgs& args) {
  const std::size_t block_bytes = packed_row_bytes<format>(args.k, args.segments) * kMaxTileRows;
  const auto fit = static_cast<int>(kInputBytes / block_bytes);
  const int blocks = fit > 1 ? fit : 1;
  const int together = args.row_blocks == 1 ? wide_vectors(args.rows) * kLanes / kPanelWidth : 1;
  const int at_once = args.row_blocks < blocks ? args.row_blocks : blocks;
  return {true, together > 1 ? together : 1, blocks,
          static_cast<std::size_t>(at_once * floats_of_sums(args)) * sizeof(float)};
}

/// Packs rows as [k][rows of the block], or as pairs of k.
template <Weight format>
void pack_rows(const LinearArgs& args, int first_block, int last_block) {
  for (int b = first_block; b < last_block; ++b) {
    const Block block = row_block(args, b);
    const int words = packed_words<format>(args.k);
    auto* out = reinterpret_cast<std::uint32_t*>(args.packed) +
                static_cast<std::ptrdiff_t>(block.first) * words;
    const std::size_t row_bytes =
        static_cast<std::size_t>(args.in_width) * (format == Weight::f32 ? 4 : 2);
    const std::byte* in = args.in + block.first * row_bytes;
    if (format == Weight::f32 || words != args.k) {
      interleave(out, block.rows, words, [&](int r, int i, int lanes, std::uint32_t* row) {
        const std::size_t at = static_cast<std::size_t>(i) * 4;
        const std::size_t bytes = static_cast<std::size_t>(lanes) * 4;
        const std::size_t left = row_bytes - at;  // odd rows end with half a word
        row[lanes - 1] = 0;
        __builtin_memcpy(row, in + r * row_bytes + at, bytes < left ? bytes : left);
      });
    } else {
      interleave(out, block.rows, words, [&](int r, int i, int, std::uint32_t* row) {
        const auto* from = reinterpret_cast<const std::uint16_t*>(in + r * row_bytes) + i;
        const int left = args.in_width - i;
        const F32 x = left >= kLanes ? load_bf16(from) : load_bf16_part(from, left);
        store(row, as_bits(x));
      });
    }
  }
}

template <Weight format>
void linear(const LinearArgs& args, int first, int last, int first_block, int last_block) {
  auto* sums = reinterpret_cast<float*>(args.scratch);
  const int blocks = last_block - first_block;
  const Block block = row_block(args, first_block);
  const Functions of_first = functions_of<format>(block.rows);
  if (blocks == 1 && of_first.stream_panels != nullptr) {
    of_first.stream_panels(args, first, last, block.first, sums);
    return;
  }
  // Blocks as large as the first one form one run, and the rest, with one row less, another.
  int alike = 1;
  while (alike < blocks && row_block(args, first_block + alike).rows == block.rows) ++alike;
  const Run largest = {block.first, 0, alike, blocks};
  const Run rest = {block.first + alike * block.rows, alike, blocks - alike, blocks};
  const Functions of_rest = rest.count > 0 ? functions_of<format>(block.rows - 1) : of_first;
  float* sums_of_rest = sums + alike * floats_of_sums(args);
  const int of_segment = steps_of<format>(args) / args.segments;
  for (int panel = first; panel < last; ++panel) {
    for (int segment = 0; segment < args.segments; ++segment) {
      const int begin = segment * of_segment;
      const int end = begin + of_segment;
      for (int step = begin; step < end; step += kStepsTogether) {
        const int next = end - step < kStepsTogether ? end : step + kStepsTogether;
        const Steps steps = {step, next, segment, step == begin, next == end};
        of_first.panel_steps(args, panel, largest, steps, sums);
        if (rest.count > 0) of_rest.panel_steps(args, panel, rest, steps, sums_of_rest);
      }
    }
  }
}

template <Weight format>
ProductKernels products() {
  return {kMaxTileRows, &blocking<format>,  &packed_row_bytes<format>,
          &first_row,   &pack_rows<format>, &linear<format>,
          nullptr};
}

}  // namespace

ProductKernels f32_products() { return products<Weight::f32>(); }
#if !defined(PACELINE_SIMD_AMX)
ProductKernels bf16_products() { return products<Weight::bf16>(); }
#endif

}  // namespace paceline::kernels::cpu::PACELINE_ISA
