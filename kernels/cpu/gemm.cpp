// Matrix products with packed weights. See tile.hpp for the arithmetic.
//
// A weight panel (32 outputs x K) is streamed from memory once and used for every row block before
// the next one; the rows, widened to fp32 and interleaved by block, stay in the caches. With few
// rows two panels go side by side, because one would leave too few chains of additions to keep the
// multipliers busy.
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/parts.hpp"
#include "kernels/cpu/simd_bf16.hpp"
#include "kernels/cpu/tile.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {
namespace {

struct Block {
  int first, rows;
};

Block row_block(const LinearArgs& args, int index) {
  const int base = args.rows / args.row_blocks;
  const int larger = args.rows % args.row_blocks;
  if (index < larger) return {index * (base + 1), base + 1};
  return {index * base + larger, base};
}

/// Which share of the next panel a row block prefetches: part `index` of `count`.
struct Share {
  int index, count;
};

/// How the weights of a product are stored and multiplied.
enum class Weight { f32, bf16 };

/// Words of 32 bits that a row has in the packed input.
template <Weight weight>
int packed_words(int k) {
#if defined(PACELINE_SIMD_DOT)
  return weight == Weight::bf16 ? k / 2 : k;
#else
  return k;
#endif
}

/// The tree over K-segments: partial sums wait by level until their neighbour is there.
template <int MR, int NV>
struct SegmentTree {
  Tile<MR, NV> waiting[7];  // log2(kMaxSegments) + 1

  PACELINE_INLINE void add(SegmentTree& tree, Tile<MR, NV>& tile, int segment) {
    int level = 0;
    for (; (segment >> level & 1) != 0; ++level) {
      PACELINE_UNROLL for (int r = 0; r < MR; ++r) {
        PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
          tile.at[r][v] = tree.waiting[level].at[r][v] + tile.at[r][v];
        }
      }
    }
    tree.waiting[level] = tile;
  }
};

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

/// NV vectors of outputs from vector `first_vector` of the matrix, for one row block of MR rows.
template <Weight format, int MR, int NV, Prefetch kPrefetch>
void product(const LinearArgs& args, int first_vector, int block, Share share) {
  constexpr bool kPairs = format == Weight::bf16;
  constexpr int kVectorsPerPanel = kPanelWidth / kLanes;
  const int row = row_block(args, block).first;
  // Weights in words: one word is a pair of bf16 or one fp32.
  const std::ptrdiff_t steps = kPairs ? args.k / 2 : args.k;
  const std::ptrdiff_t panel_words = steps * kPanelWidth;
  const auto* weight = reinterpret_cast<const std::uint32_t*>(args.weight);
  const std::uint32_t* b[NV];
  PACELINE_UNROLL for (int v = 0; v < NV; ++v) {
    const int vector = first_vector + v;
    b[v] = weight + vector / kVectorsPerPanel * panel_words + vector % kVectorsPerPanel * kLanes;
  }
  const auto* rows = reinterpret_cast<const std::uint32_t*>(args.packed) +
                     static_cast<std::ptrdiff_t>(row) * packed_words<format>(args.k);
  // Rounded up, so that the shares leave no gap; at least two, so that a step is a line at most.
  const std::ptrdiff_t panel_bytes = panel_words * 4;
  Ahead ahead;
  ahead.step = (panel_bytes / steps + share.count - 1) / share.count;
  ahead.next = args.weight + (first_vector / kVectorsPerPanel + 1) * panel_bytes +
               share.index * ahead.step * steps;

  const auto range = [&](Tile<MR, NV> & tile, const std::uint32_t* a, int count)
      __attribute__((always_inline)) {
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
  };

  Tile<MR, NV> tile;
  if (args.segments == 1) {
    clear(tile);
    range(tile, rows, static_cast<int>(steps));
  } else {
    SegmentTree<MR, NV> tree;
    const int count = static_cast<int>(steps / args.segments);
    const std::ptrdiff_t row_words =
        static_cast<std::ptrdiff_t>(packed_words<format>(args.k)) / args.segments * MR;
    for (int s = 0; s < args.segments; ++s) {
      clear(tile);
      range(tile, rows + s * row_words, count);
      PACELINE_UNROLL for (int v = 0; v < NV; ++v) b[v] += count * kPanelWidth;
      SegmentTree<MR, NV>::add(tree, tile, s);
    }
  }
  finish(args, tile, row, first_vector * kLanes);
}

/// Vectors side by side for a row block of that many rows: enough accumulators to hide the latency
/// of addition.
constexpr int wide_vectors(int rows) {
#if defined(PACELINE_SIMD_AVX512)
  return rows <= 3 ? 4 : 2;
#elif defined(PACELINE_SIMD_AVX2)
  return rows == 1 ? 4 : rows == 2 ? 2 : 1;
#else
  return rows == 1 ? 2 : 1;
#endif
}

/// Panels [first, last) for one row block of MR rows.
template <Weight format, int MR>
void panels(const LinearArgs& args, int first, int last, int block, Share share) {
  constexpr int kVectorsPerPanel = kPanelWidth / kLanes;
  constexpr int kWide = wide_vectors(MR);
  int vector = first * kVectorsPerPanel;
  const int end = last * kVectorsPerPanel;
  if (share.count > 1) {
    // The panel is there already (the blocks of the one before fetched it).
    constexpr int kNarrow = kWide < kVectorsPerPanel ? kWide : kVectorsPerPanel;
    for (; vector < end; vector += kNarrow) {
      product<format, MR, kNarrow, Prefetch::next>(args, vector, block, share);
    }
    return;
  }
  for (; vector + kWide <= end; vector += kWide) {
    product<format, MR, kWide, Prefetch::same>(args, vector, block, share);
  }
  if constexpr (kWide > kVectorsPerPanel) {
    for (; vector < end; vector += kVectorsPerPanel) {
      product<format, MR, kVectorsPerPanel, Prefetch::same>(args, vector, block, share);
    }
  }
}

using PanelsFunction = void (*)(const LinearArgs&, int, int, int, Share);

/// Functions by number of rows; [0] is unused.
template <Weight format>
PanelsFunction panels_function(int rows) {
  switch (rows) {
#define PACELINE_CASE(MR)                                         \
  case MR:                                                        \
    if constexpr (MR <= kMaxTileRows) return &panels<format, MR>; \
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

/// Interleaves the rows of a block: words[i][r], 16 elements of a row at a time.
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

/// Packed input that stays in the second-level cache while weight panels pass by.
constexpr std::size_t kInputBytes = std::size_t{1} << 20;

/// As many row blocks as the cache holds. One block has wide products of its own.
template <Weight format>
Blocking blocking(const LinearArgs& args) {
  const std::size_t block_bytes = packed_row_bytes<format>(args.k, args.segments) * kMaxTileRows;
  const auto most = static_cast<int>(kInputBytes / block_bytes);
  const int together = args.row_blocks == 1 ? wide_vectors(args.rows) * kLanes / kPanelWidth : 1;
  return {together > 1 ? together : 1, most > 1 ? most : 1, 0};
}

/// [k][rows of the block], or pairs of k.
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
        const std::size_t left = row_bytes - at;  // of an odd row, half a word less
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
  if (last_block - first_block == 1) {
    const PanelsFunction run = panels_function<format>(row_block(args, first_block).rows);
    run(args, first, last, first_block, {0, 1});
    return;
  }
  for (int panel = first; panel < last; ++panel) {
    for (int block = first_block; block < last_block; ++block) {
      const PanelsFunction run = panels_function<format>(row_block(args, block).rows);
      run(args, panel, panel + 1, block, {block - first_block, last_block - first_block});
    }
  }
}

template <Weight format>
ProductKernels products() {
  return {kMaxTileRows, &blocking<format>,  &packed_row_bytes<format>,
          &first_row,   &pack_rows<format>, &linear<format>};
}

}  // namespace

ProductKernels f32_products() { return products<Weight::f32>(); }
#if !defined(PACELINE_SIMD_AMX)
ProductKernels bf16_products() { return products<Weight::bf16>(); }
#endif

}  // namespace paceline::kernels::cpu::PACELINE_ISA
