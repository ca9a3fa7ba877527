// Products with bf16 weights on the tile unit (AMX), which multiplies 16 x 32 by 32 x 16 in one
// instruction. Up to 16 rows cost as much as one, so verifying drafts is nearly free, except where
// weights come from the cache faster than they are multiplied.
//
// One instruction adds 32 products to each fp32 output: the even and the odd elements of K form two
// chains of fused multiply-adds in ascending order, whose sum is added to the output; subnormals
// count as zero. An output depends on its own row and column only, whatever the other rows of its
// tile; this also holds for chains of these steps.
//
// Up to 16 rows stay in a cache while pairs of panels are streamed past them. More rows use one
// panel after the other, and prefetch the next one meanwhile: whole panels if these fit the
// second-level cache, else chunk by chunk. Between chunks outputs are stored and reloaded
// unchanged, so that the chain of steps is the same.
//
// Where panels are taken whole, gates and ups never leave the first-level cache: the vector units
// compute silu(gate) * up of one row block while the tile unit multiplies the next.
//
// Rows are packed as [tile][segment][step][rows of the tile][32] and padded with zeros behind the
// end of a segment: the last step of a segment may read weights of the next one, which are then
// multiplied by zero. Rows that need no padding are read in place, where packing would take longer
// than it saves.
#include "kernels/cpu/parts.hpp"
#include "kernels/cpu/tile_steps.hpp"

namespace paceline::kernels::cpu::PACELINE_ISA {

constinit thread_local int configured_tiles = 0;
#if defined(PACELINE_TILES_IN_SOFTWARE)
thread_local SoftwareTiles software_tiles = {};
#endif

namespace {

/// Steps of a chunk, which all row blocks take before the next chunk: 16 KB of a panel, which stay
/// in the first-level cache while each block's 16 KB of rows are used. With twice as many, a step
/// takes a third longer; with half as many, outputs are stored and reloaded too often (measured).
constexpr int kChunkSteps = 8;
/// Steps up to which a segment is taken whole: 16 row blocks of it fit the second-level cache, and
/// keeping outputs in tiles saves more than the first-level cache does (128 and 256 rows of 896
/// elements take 5 to 7 % less time, 512 rows the same; measured).
constexpr int kFewSteps = 32;
/// Packed size up to which one or two row blocks take whole panels, so that there is more time to
/// prefetch the next panel (a fifth faster, measured).
constexpr std::size_t kFewRowBytes = std::size_t{512} << 10;
/// Weights below this size stay in a cache: without prefetching they take 3 to 10 % less time
/// (measured).
constexpr std::ptrdiff_t kStreamedBytes = std::ptrdiff_t{1} << 20;
/// Panels of a call that streams panels. The first one has not been prefetched; this costs less,
/// the more panels follow.
constexpr int kStreamedPanels = 4;
/// Bytes of packed rows that fit a second-level cache.
constexpr std::size_t kInputBytes = std::size_t{1} << 20;
/// Bytes of a call's unfinished outputs where its rows stay in the cache. They are the outputs of
/// enough panels for chunks to save time.
constexpr std::size_t kSumBytes = std::size_t{128} << 10;
/// Bytes of a call's unfinished outputs where its rows are fetched again for each group of panels:
/// as many as the cache holds.
constexpr std::size_t kMostSumBytes = std::size_t{512} << 10;
/// Row blocks up to which rows are read in place, as packing would take longer than it saves.
/// Products of up to 64 rows of 4,864 elements then take 5 to 12 % less time, of 896 elements 3 to
/// 10 % less, with more panels the same (measured).
constexpr int kFewBlocks = 2;
/// Panels of a thread up to which more row blocks are read in place too, as they are read so few
/// times (65 to 512 rows with 14 or 18 panels for each thread take 5 to 15 % less time, with 152
/// panels up to 10 % more; measured). Rows at distances of whole small pages are packed in any
/// case: their lines would evict each other from the caches.
constexpr int kFewPanels = 32;
constexpr int kSmallPage = 4096;
/// Most row blocks of a call: one chunk of all their rows, 16 KB for each block, fits the
/// second-level cache too.
constexpr int kMostBlocks = 16;

int steps_of_segment(int k, int segments) { return (k / segments + kStep - 1) / kStep; }

/// Configures the tiles: 0 and 1 are outputs, 2 and 3 outputs of a second row tile or panel, 4 and
/// 5 rows, 6 and 7 weights.
void configure_product(int first_rows, int second_rows) {
  const int other = second_rows > 0 ? second_rows : first_rows;
  configure_tiles(first_rows, other);
}

/// One or two row tiles. A tile of fewer than 16 rows takes less time. But only products of one
/// block have smaller tiles: others would have to reconfigure the tiles for every chunk.
struct Block {
  int first;     ///< row
  int tiles;     ///< 1 or 2
  int rows[2];   ///< rows of the product, by tile
  int lines[2];  ///< rows that are packed and multiplied, by tile
};

Block row_block(const LinearArgs& args, int index) {
  const int tiles = (args.rows + kTileRows - 1) / kTileRows;
  const int single = args.row_blocks * 2 - tiles;  // the last blocks have one tile
  Block block;
  block.tiles = index < args.row_blocks - single ? 2 : 1;
  const int first = block.tiles == 2 ? 2 * index : tiles - (args.row_blocks - index);
  block.first = first * kTileRows;
  for (int t = 0; t < 2; ++t) {
    const int left = args.rows - block.first - t * kTileRows;
    block.rows[t] = t >= block.tiles ? 0 : left < kTileRows ? left : kTileRows;
    block.lines[t] = args.row_blocks == 1 || block.rows[t] == 0 ? block.rows[t] : kTileRows;
  }
  return block;
}

/// Whether a block's row tile is read from the product's input in place, and not packed.
bool reads_in_place(const LinearArgs& args, const Block& block, int tile) {
  const bool whole_steps = args.in_width == args.k && args.k / args.segments % kStep == 0;
  const bool few_panels = args.n <= kFewPanels * kPanelWidth * args.threads;
  return whole_steps && block.rows[tile] == block.lines[tile] &&
         (args.row_blocks <= kFewBlocks || (few_panels && args.k * 2 % kSmallPage != 0));
}

/// Outputs of four tiles: [tile][row][16], one kilobyte for each tile.
struct alignas(64) Outputs {
  float at[4][kTileRows * kLanes];
};
static_assert(kSumBytes / sizeof(Outputs) / kMostBlocks >= 2, "outputs of gates and of ups");

void store_tiles(Outputs& out) {
  _tile_stored(0, out.at[0], kRowBytes);
  _tile_stored(1, out.at[1], kRowBytes);
  _tile_stored(2, out.at[2], kRowBytes);
  _tile_stored(3, out.at[3], kRowBytes);
}

void load_tiles(const Outputs& in) {
  _tile_loadd(0, in.at[0], kRowBytes);
  _tile_loadd(1, in.at[1], kRowBytes);
  _tile_loadd(2, in.at[2], kRowBytes);
  _tile_loadd(3, in.at[3], kRowBytes);
}

/// Adds `from` to `to`, all rows of the tiles: absent rows are added too, but never used.
PACELINE_INLINE void add(const Outputs& from, Outputs& to, int tiles) {
  for (int t = 0; t < tiles; ++t) {
    for (int i = 0; i < kTileRows * kLanes; i += kLanes) {
      store(to.at[t] + i, load(from.at[t] + i) + load(to.at[t] + i));
    }
  }
}

/// Writes a block's outputs from the tiles to their destination.
template <int tiles, int panels>
void store_outputs(const LinearArgs& args, const Block& block, int panel) {
  const std::ptrdiff_t stride = args.out_stride * std::ptrdiff_t{sizeof(float)};
  float* out = args.out + block.first * args.out_stride + (panel * kPanelWidth - args.first_column);
  _tile_stored(0, out, stride);
  _tile_stored(1, out + kLanes, stride);
  if constexpr (tiles == 2) out += kTileRows * args.out_stride;
  if constexpr (panels == 2) out += kPanelWidth;
  if constexpr (tiles == 2 || panels == 2) {
    _tile_stored(2, out, stride);
    _tile_stored(3, out + kLanes, stride);
  }
}

/// Whether the tiles' contents are the outputs: all rows and columns, with nothing left to add.
bool tiles_are_outputs(const LinearArgs& args, const Block& block, int end_panel) {
  return args.segments == 1 && args.bias == nullptr && end_panel * kPanelWidth <= args.n &&
         block.rows[0] == block.lines[0] && block.rows[1] == block.lines[1];
}

/// Writes `rows` rows of 16 outputs (fewer at the right edge), adding the bias.
void finish(const LinearArgs& args, const float* tile, int rows, int row, int column) {
  const int count = args.n - column < kLanes ? args.n - column : kLanes;
  if (count <= 0) return;
  const F32 bias = args.bias != nullptr ? load_part(args.bias + column, count) : set1(0.0F);
  float* out = args.out + row * args.out_stride + (column - args.first_column);
  for (int r = 0; r < rows; ++r) {
    F32 x = load(tile + r * kLanes);
    if (args.bias != nullptr) x = x + bias;
    store_part(out + r * args.out_stride, x, count);
  }
}

/// Number of unfinished Outputs of a row block with a panel (or two): the segment's sum so far, and
/// for each level of the tree over segments the sum that waits there for its neighbour.
std::size_t sums_of(int segments) {
  return 1 + static_cast<std::size_t>(__builtin_ctz(static_cast<unsigned>(segments)));
}
/// The outputs of place `index` in the scratch memory.
Outputs* sums_at(const LinearArgs& args, int index) {
  return reinterpret_cast<Outputs*>(args.scratch) + index * sums_of(args.segments);
}

/// A chunk: steps of a segment, in one panel or in two side by side.
struct Chunk {
  int panel, second;       ///< the panels
  int segment;             ///< segment of K
  int begin, steps;        ///< steps of the segment
  bool last;               ///< ends the segment
  bool streamed;           ///< panels come from memory during the product
  const std::byte* ahead;  ///< data that is multiplied next, as large as the chunk
  int fetching;            ///< blocks that each prefetch a share of `ahead`; 0: none
};

/// Takes a row block through a chunk: one row tile with one or two panels, or two row tiles with
/// one panel. The tiles then hold the sums so far, beginning from `sums`.
template <int tiles, int panels, bool gated>
PACELINE_INLINE void take_steps(const LinearArgs& args, const Chunk& chunk, const Block& block,
                                int index, const Outputs& sums, Gating* gating) {
  configure_product(block.lines[0], block.lines[1]);
  const int segment_steps = steps_of_segment(args.k, args.segments);
  const std::ptrdiff_t packed_row = std::ptrdiff_t{kRowBytes} * segment_steps * args.segments;
  const int first = chunk.segment * segment_steps + chunk.begin;  // step in a row
  const std::ptrdiff_t panel_bytes = static_cast<std::ptrdiff_t>(args.k) * kPanelWidth * 2;
  Work work;
  for (int t = 0; t < tiles; ++t) {
    const int row = block.first + t * kTileRows;
    if (reads_in_place(args, block, t)) {
      work.row_bytes[t] = packed_row;
      work.step_bytes[t] = kRowBytes;
      work.rows[t] = args.in + row * packed_row + first * work.step_bytes[t];
    } else {
      work.row_bytes[t] = kRowBytes;
      work.step_bytes[t] = block.lines[t] * kRowBytes;
      work.rows[t] = args.packed + row * packed_row + first * work.step_bytes[t];
    }
  }
  for (int p = 0; p < panels; ++p) {
    work.weight[p] = args.weight + (p == 0 ? chunk.panel : chunk.second) * panel_bytes +
                     chunk.segment * (panel_bytes / args.segments) + chunk.begin * kPanelStep;
  }
  work.ahead_lines = 0;
  if (chunk.fetching > 0) {
    const int first_line = kPlaceLines * index / chunk.fetching;
    work.ahead_lines = kPlaceLines * (index + 1) / chunk.fetching - first_line;
    work.ahead_place = chunk.steps * kPanelStep / kPlaces;
    work.ahead = chunk.ahead + std::ptrdiff_t{64} * first_line * chunk.steps;
  }

  if (chunk.begin == 0) {
    clear_tiles();
  } else {
    load_tiles(sums);
  }
  run_steps<tiles, panels, gated>(work, chunk.steps, chunk.streamed, gating);
}

/// Takes a block of a product through a chunk, and writes the outputs after the last chunk of a
/// panel.
template <int tiles, int panels>
void multiply(const LinearArgs& args, const Chunk& chunk, const Block& block, int index,
              Outputs* sums) {
  take_steps<tiles, panels, false>(args, chunk, block, index, sums[0], nullptr);
  if (chunk.last && tiles_are_outputs(args, block, chunk.panel + panels)) {
    store_outputs<tiles, panels>(args, block, chunk.panel);
    return;
  }
  store_tiles(sums[0]);
  if (!chunk.last) return;

  int level = 0;
  for (; (chunk.segment >> level & 1) != 0; ++level)
    add(sums[1 + level], sums[0], 2 * tiles * panels);
  if (chunk.segment + 1 < args.segments) {
    sums[1 + level] = sums[0];
    return;
  }
  for (int t = 0; t < tiles; ++t) {
    for (int v = 0; v < 2 * panels; ++v) {
      finish(args, sums[0].at[2 * t + v], block.rows[t], block.first + t * kTileRows,
             chunk.panel * kPanelWidth + v * kLanes);
    }
  }
}

int first_row(const LinearArgs& args, int block) {
  return block == args.row_blocks ? args.rows : row_block(args, block).first;
}

std::size_t packed_row_bytes(int k, int segments) {
  return static_cast<std::size_t>(steps_of_segment(k, segments)) * segments * kRowBytes;
}

void pack_tile(const LinearArgs& args, const Block& block, int tile) {
  const int steps = steps_of_segment(args.k, args.segments);
  const int width = args.in_width / args.segments;
  const std::ptrdiff_t row_bytes = std::ptrdiff_t{args.in_width} * 2;
  const std::ptrdiff_t first = block.first + tile * kTileRows;
  const std::byte* in = args.in + first * row_bytes;
  std::byte* out = args.packed + first * packed_row_bytes(args.k, args.segments);
  const std::ptrdiff_t unused = (block.lines[tile] - block.rows[tile]) * kRowBytes;
  for (int s = 0; s < args.segments; ++s) {
    for (int step = 0; step < steps; ++step) {
      const int left = width - step * kStep;
      const __mmask32 mask = left >= kStep ? 0xFFFFFFFFU : (1U << left) - 1;
      const std::byte* from = in + (s * width + step * kStep) * 2;
      for (int r = 0; r < block.rows[tile]; ++r, out += kRowBytes)
        _mm512_storeu_si512(out, _mm512_maskz_loadu_epi16(mask, from + r * row_bytes));
      out += unused;
    }
  }
}

void pack_rows(const LinearArgs& args, int first_block, int last_block) {
  for (int b = first_block; b < last_block; ++b) {
    const Block block = row_block(args, b);
    for (int tile = 0; tile < block.tiles; ++tile) {
      if (!reads_in_place(args, block, tile)) pack_tile(args, block, tile);
    }
  }
}

std::size_t packed_bytes_of(const LinearArgs& args) {
  return packed_row_bytes(args.k, args.segments) * args.rows;
}

/// Whether a row block goes through a whole panel before the next one does.
bool takes_whole_panels(const LinearArgs& args) {
  return steps_of_segment(args.k, args.segments) <= kFewSteps ||
         (args.row_blocks <= 2 && packed_bytes_of(args) <= kFewRowBytes);
}

Blocking blocking(const LinearArgs& args) {
  Blocking out;
  // If any tile is packed, the last one is.
  const Block last = row_block(args, args.row_blocks - 1);
  out.packs = !reads_in_place(args, last, last.tiles - 1);
  out.blocks = args.row_blocks < kMostBlocks ? args.row_blocks : kMostBlocks;
  if (args.row_blocks == 1 || takes_whole_panels(args)) {
    out.panels = kStreamedPanels;
  } else {
    const std::size_t bytes = packed_bytes_of(args) > kInputBytes ? kMostSumBytes : kSumBytes;
    out.panels = static_cast<int>(bytes / sizeof(Outputs)) / out.blocks;
  }
  out.scratch_bytes = sizeof(Outputs) * sums_of(args.segments) * out.blocks * out.panels;
  return out;
}

bool comes_from_memory(const LinearArgs& args) {
  return std::ptrdiff_t{args.n} * args.k * 2 >= kStreamedBytes;
}

/// Multiplies one block: its rows stay in the cache while panels are streamed.
void multiply_one(const LinearArgs& args, int first, int last, int block_index) {
  const Block block = row_block(args, block_index);
  const int steps = steps_of_segment(args.k, args.segments);
  const bool streamed = comes_from_memory(args);
  Outputs* sums = sums_at(args, 0);
  for (int panel = first; panel < last;) {
    const int panels = block.tiles == 1 && panel + 2 <= last ? 2 : 1;
    for (int s = 0; s < args.segments; ++s) {
      const Chunk chunk = {panel, panel + 1, s, 0, steps, true, streamed, nullptr, 0};
      if (block.tiles == 2) {
        multiply<2, 1>(args, chunk, block, 0, sums);
      } else if (panels == 2) {
        multiply<1, 2>(args, chunk, block, 0, sums);
      } else {
        multiply<1, 1>(args, chunk, block, 0, sums);
      }
    }
    panel += panels;
  }
}

/// Takes row blocks [first, last) through a chunk. `sums`: sums of the first block.
void take_chunk(const LinearArgs& args, const Chunk& chunk, int first, int last, Outputs* sums) {
  for (int b = first; b < last; ++b, sums += sums_of(args.segments)) {
    const Block block = row_block(args, b);
    if (block.tiles == 2) {
      multiply<2, 1>(args, chunk, block, b - first, sums);
    } else {
      multiply<1, 1>(args, chunk, block, b - first, sums);
    }
  }
}

/// Multiplies blocks with panels [group, end), whose outputs stay in the cache: for each chunk,
/// each panel is used with all blocks.
void multiply_group(const LinearArgs& args, int group, int end, int first_block, int last_block) {
  const int count = last_block - first_block;
  const int steps = steps_of_segment(args.k, args.segments);
  const int most_steps = takes_whole_panels(args) ? steps : kChunkSteps;
  const std::ptrdiff_t panel_bytes = static_cast<std::ptrdiff_t>(args.k) * kPanelWidth * 2;
  const std::ptrdiff_t segment_bytes = panel_bytes / args.segments;
  const int fetching = comes_from_memory(args) ? count : 0;
  for (int s = 0; s < args.segments; ++s) {
    for (int begin = 0; begin < steps; begin += most_steps) {
      const int taken = begin + most_steps < steps ? most_steps : steps - begin;
      const bool last = begin + taken == steps;
      // Offsets of the chunk in a panel, and of the data after it.
      const std::ptrdiff_t at = s * segment_bytes + begin * kPanelStep;
      const std::ptrdiff_t after = last ? (s + 1) * segment_bytes : at + taken * kPanelStep;
      for (int panel = group; panel < end; ++panel) {
        const std::ptrdiff_t next = panel + 1 < end       ? (panel + 1) * panel_bytes + at
                                    : after < panel_bytes ? group * panel_bytes + after
                                                          : end * panel_bytes;
        take_chunk(args, {panel, panel, s, begin, taken, last, false, args.weight + next, fetching},
                   first_block, last_block, sums_at(args, (panel - group) * count));
      }
    }
  }
}

void linear(const LinearArgs& args, int first, int last, int first_block, int last_block) {
  const bool one = last_block - first_block == 1;
  if (one && (row_block(args, first_block).tiles == 1 || !takes_whole_panels(args)))
    return multiply_one(args, first, last, first_block);
  const int panels = takes_whole_panels(args) ? 1 : blocking(args).panels;
  for (int group = first; group < last; group += panels) {
    const int end = group + panels < last ? group + panels : last;
    multiply_group(args, group, end, first_block, last_block);
  }
}

/// Takes a row block through a chunk of gates or of ups, while rows of earlier outputs are gated.
void take_gated(const LinearArgs& args, const Chunk& chunk, const Block& block, int index,
                Outputs& sums, Gating& gating) {
  if (block.tiles == 2) {
    take_steps<2, 1, true>(args, chunk, block, index, sums, &gating);
  } else {
    take_steps<1, 1, true>(args, chunk, block, index, sums, &gating);
  }
  store_tiles(sums);
}

int first_up(const LinearArgs& args) { return args.n / kPanelWidth / 2; }

/// Computes gated outputs of one row tile: gates and ups are streamed side by side.
void gate_one(const LinearArgs& args, int first, int last, int block_index, Gating& gating) {
  const Block block = row_block(args, block_index);
  const int steps = steps_of_segment(args.k, 1);
  const bool streamed = comes_from_memory(args);
  for (int panel = first; panel < last; ++panel) {
    Outputs& out = sums_at(args, 0)[panel & 1];
    const Chunk chunk = {panel, first_up(args) + panel, 0, 0, steps, true, streamed, nullptr, 0};
    take_steps<1, 2, true>(args, chunk, block, 0, out, &gating);
    store_tiles(out);
    gate_block(gating, out.at[0], out.at[2], block.first, block.rows[0], panel, steps);
  }
}

/// Computes gated outputs by whole panels: each block takes a panel of gates and then one of ups.
void gate_panels(const LinearArgs& args, int first, int last, int first_block, int last_block,
                 Gating& gating) {
  const int steps = steps_of_segment(args.k, 1);
  const std::ptrdiff_t panel_bytes = static_cast<std::ptrdiff_t>(args.k) * kPanelWidth * 2;
  const bool streamed = comes_from_memory(args) && !takes_whole_panels(args);
  const int fetching = comes_from_memory(args) && !streamed ? last_block - first_block : 0;
  Outputs* out = sums_at(args, 0);
  for (int panel = first; panel < last; ++panel) {
    for (int b = first_block; b < last_block; ++b) {
      const Block block = row_block(args, b);
      for (int half = 0; half < 2; ++half) {
        const int of_half = panel + half * first_up(args);
        const std::byte* next = args.weight + (of_half + 1) * panel_bytes;
        const Chunk chunk = {of_half, of_half, 0, 0, steps, true, streamed, next, fetching};
        take_gated(args, chunk, block, b - first_block, out[half], gating);
      }
      gate_block(gating, out[0].at[0], out[1].at[0], block.first, block.rows[0] + block.rows[1],
                 panel, 2 * steps);
      out = out == sums_at(args, 0) ? out + 2 : out - 2;
    }
  }
}

/// Computes gated outputs chunk by chunk: the outputs of panels [first, last) of gates and of ups
/// stay in the cache.
void gate_group(const LinearArgs& args, int first, int last, int first_block, int last_block,
                Gating& gating) {
  const int count = last_block - first_block;
  const int steps = steps_of_segment(args.k, 1);
  const std::ptrdiff_t panel_bytes = static_cast<std::ptrdiff_t>(args.k) * kPanelWidth * 2;
  const int fetching = comes_from_memory(args) ? count : 0;
  for (int begin = 0; begin < steps; begin += kChunkSteps) {
    const int taken = begin + kChunkSteps < steps ? kChunkSteps : steps - begin;
    const bool last_chunk = begin + taken == steps;
    const std::ptrdiff_t at = begin * kPanelStep;
    const std::ptrdiff_t after =
        last_chunk ? last * panel_bytes : first * panel_bytes + at + taken * kPanelStep;
    for (int panel = first; panel < last; ++panel) {
      Outputs* gates = sums_at(args, (panel - first) * 2 * count);
      for (int half = 0; half < 2; ++half) {
        const int of_half = panel + half * first_up(args);
        const std::ptrdiff_t next = half == 0          ? (panel + first_up(args)) * panel_bytes + at
                                    : panel + 1 < last ? (panel + 1) * panel_bytes + at
                                                       : after;
        const Chunk chunk = {
            of_half, of_half, 0, begin, taken, last_chunk, false, args.weight + next, fetching};
        for (int b = 0; b < count; ++b) {
          const Block block = row_block(args, first_block + b);
          take_gated(args, chunk, block, b, gates[half * count + b], gating);
          if (half == 0 || !last_chunk) continue;
          gate_block(gating, gates[b].at[0], gates[count + b].at[0], block.first,
                     block.rows[0] + block.rows[1], panel, taken);
        }
      }
    }
  }
  gate_rows(gating, gating.rows);
}

void linear_swiglu(const LinearArgs& args, std::byte* out, int first, int last, int first_block,
                   int last_block) {
  const bool one = last_block - first_block == 1;
  // Non-temporal stores avoid reading lines that no cache holds before they are written (gates of
  // 128 and 512 rows take 8 and 11 % less time; measured).
  const bool past_caches = std::size_t{1} * args.rows * args.n > kInputBytes &&
                           reinterpret_cast<std::uintptr_t>(out) % 64 == 0;
  Gating gating = {out, args.n, past_caches};
  if (one && row_block(args, first_block).tiles == 1) {
    gate_one(args, first, last, first_block, gating);
  } else if (one || takes_whole_panels(args)) {
    gate_panels(args, first, last, first_block, last_block, gating);
  } else {
    const int pairs = blocking(args).panels / 2;
    for (int group = first; group < last; group += pairs) {
      gate_group(args, group, group + pairs < last ? group + pairs : last, first_block, last_block,
                 gating);
    }
  }
  finish_gating(gating);
}

}  // namespace

ProductKernels bf16_products() {
  return {2 * kTileRows, &blocking, &packed_row_bytes, &first_row,
          &pack_rows,    &linear,   &linear_swiglu};
}

}  // namespace paceline::kernels::cpu::PACELINE_ISA
