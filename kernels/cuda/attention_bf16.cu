// Attention with tensor cores: a block of threads walks an item for one kv head.
//
// The (row, query head) pairs are the rows of the products, in tiles of 16. Four warps share a tile
// of 64 positions: each computes the scores of 16 of them for all pairs. Then the warps exchange
// weights through shared memory, and each computes a quarter of the columns of the weighted values.
// So no sum depends on the number of pairs, and the order in which scores, weights and values are
// added is fixed. If there are few blocks to run, eight warps take two tiles at a time. The results
// are the same: the scores of the two tiles merely do not wait for one another.
//
// K and V come through rings of stages in shared memory, copied asynchronously while the block
// computes with earlier stages. A row consists of 16-byte pieces, which are stored in exchanged
// order (swizzled), so that eight neighbouring rows can be read at once.
#include "kernels/cuda/attention_parts.cuh"

namespace paceline::kernels::cuda {
namespace {

/// width: head_dim padded with zeros to this many columns. step: number of tiles that are walked at
/// a time. stages: number of stages in each of the rings of K and V.
template <int width, int pair_tiles, int step, int stages>
struct Shape {
  static constexpr int kThreads = 128 * step;
  /// Blocks that a multiprocessor runs at once: as many as its shared memory holds. The compiler
  /// must limit registers accordingly.
  static constexpr int kBlocks = width == 256 || step > 1 ? 1 : pair_tiles > 1 ? 2 : 3;
  static constexpr int kPairs = kAttentionPairs * pair_tiles;
  static constexpr int kStages = stages;
  static constexpr int kColumns = width / (4 * step);  ///< columns of the values for one warp
  static constexpr int kColumnTiles = kColumns / 8;

  // Shared memory, in bytes.
  static constexpr int kRowBytes = width * 2;
  static constexpr int kStageBytes = step * kAttentionTile * kRowBytes;
  static constexpr int kWeightBytes = kPairs * kAttentionTile * 2;  ///< weights of one tile
  static constexpr int kKeys = 0;                                   ///< [stages][positions][width]
  static constexpr int kValues = kKeys + kStages * kStageBytes;     ///< [stages][positions][width]
  static constexpr int kQueries = kValues + kStages * kStageBytes;  ///< [pairs][width]
  static constexpr int kWeights = kQueries + kPairs * kRowBytes;    ///< [step][pairs][64]
  static constexpr int kMaxima = kWeights + step * kWeightBytes;    ///< [step][pairs][4 warps]
  static constexpr int kSums = kMaxima + step * kPairs * 16;        ///< [step][pairs][4 warps]
  static constexpr int kAddresses = kSums + step * kPairs * 16;     ///< [kAttentionSplit]
  static constexpr int kPairList = kAddresses + kAttentionSplit * 4;  ///< [pairs]
  static constexpr int kBytes = kPairList + kPairs * static_cast<int>(sizeof(AttentionPair));
  static_assert(width % 64 == 0 && kColumns % 8 == 0);
};

/// Byte offset of piece `piece` (8 elements) in a row.
template <int row_bytes>
__device__ __forceinline__ int swizzled(int row, int piece) {
  return row * row_bytes + ((piece ^ (row & 7)) << 4);
}

/// Starts the copies of the keys, or values, of `tiles` tiles into a stage.
template <class S>
__device__ __forceinline__ void copy_tiles(const AttentionArgs& args, const std::byte* from,
                                           const std::uint32_t* addresses, int tiles,
                                           std::byte* stage) {
  constexpr int kPieces = S::kRowBytes / 16;
  constexpr int kRows = S::kThreads / kPieces;  // rows copied at a time
  const int piece = static_cast<int>(threadIdx.x) % kPieces;
  const bool column = piece * 8 < args.head_dim;
  const int rows = tiles * kAttentionTile;
#pragma unroll 8
  for (int row = static_cast<int>(threadIdx.x) / kPieces; row < rows; row += kRows) {
    const std::uint32_t address = addresses[row];
    const bool valid = column && address != kNoKey;
    const std::size_t offset =
        valid ? static_cast<std::size_t>(address) * args.row_bytes + piece * 16 : 0;
    cp_async_16(stage + swizzled<S::kRowBytes>(row, piece), from + offset, valid);
  }
}

template <class S>
__device__ __forceinline__ void copy_queries(const AttentionArgs& args, const AttentionPair* pairs,
                                             std::byte* queries) {
  constexpr int kPieces = S::kRowBytes / 16;
  for (int i = static_cast<int>(threadIdx.x); i < S::kPairs * kPieces; i += S::kThreads) {
    const int piece = i % kPieces;
    const int row_head = pairs[i / kPieces].row_head;
    const bool valid = row_head >= 0 && piece * 8 < args.head_dim;
    const std::size_t offset =
        valid ? (static_cast<std::size_t>(row_head) * args.head_dim + piece * 8) * 2 : 0;
    cp_async_16(queries + swizzled<S::kRowBytes>(i / kPieces, piece), args.q + offset, valid);
  }
}

/// scores = queries * keys^T for all pairs and 16 positions, with keys from row `first` of the
/// stage on.
template <class S, int pair_tiles>
__device__ __forceinline__ void score(const std::byte* queries, const std::byte* keys, int first,
                                      int used_tiles, float (&scores)[pair_tiles][2][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int p = 0; p < pair_tiles; ++p) {
#pragma unroll
    for (int i = 0; i < 8; ++i) scores[p][i / 4][i % 4] = 0;
  }
#pragma unroll
  for (int k = 0; k < S::kRowBytes / 32; ++k) {
    std::uint32_t key[4];
    ldmatrix_x4(key, keys + swizzled<S::kRowBytes>(first + (lane / 16) * 8 + lane % 8,
                                                   k * 2 + lane / 8 % 2));
    const std::uint32_t low[2] = {key[0], key[1]};
    const std::uint32_t high[2] = {key[2], key[3]};
#pragma unroll
    for (int p = 0; p < pair_tiles; ++p) {
      if (p >= used_tiles) break;
      std::uint32_t query[4];
      ldmatrix_x4(query, queries + swizzled<S::kRowBytes>(p * 16 + lane % 16, k * 2 + lane / 16));
      mma_bf16_16816(scores[p][0], query, low);
      mma_bf16_16816(scores[p][1], query, high);
    }
  }
}

/// values += weights * V over the 64 positions of a tile, with values from row `first` of the stage
/// on, for the columns of this warp.
template <class S, int pair_tiles>
__device__ __forceinline__ void accumulate(const std::byte* weights, const std::byte* stage,
                                           int first, int used_tiles,
                                           float (&values)[pair_tiles][S::kColumnTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int piece = static_cast<int>(threadIdx.x / 32) * S::kColumnTiles;
#pragma unroll
  for (int k = 0; k < kAttentionTile / 16; ++k) {
    const int row = first + k * 16 + lane % 16;
    std::uint32_t value[S::kColumnTiles][2];
    if constexpr (S::kColumnTiles % 2 == 0) {
#pragma unroll
      for (int c = 0; c < S::kColumnTiles; c += 2) {
        std::uint32_t four[4];
        ldmatrix_x4_trans(four, stage + swizzled<S::kRowBytes>(row, piece + c + lane / 16));
        value[c][0] = four[0];
        value[c][1] = four[1];
        value[c + 1][0] = four[2];
        value[c + 1][1] = four[3];
      }
    } else {
#pragma unroll
      for (int c = 0; c < S::kColumnTiles; ++c) {
        ldmatrix_x2_trans(value[c], stage + swizzled<S::kRowBytes>(row, piece + c));
      }
    }
#pragma unroll
    for (int p = 0; p < pair_tiles; ++p) {
      if (p >= used_tiles) break;
      std::uint32_t weight[4];
      ldmatrix_x4(weight,
                  weights + swizzled<kAttentionTile * 2>(p * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
      for (int c = 0; c < S::kColumnTiles; ++c) mma_bf16_16816(values[p][c], weight, value[c]);
    }
  }
}

/// Returns the maximum over the four lanes that hold a row of a product.
__device__ __forceinline__ float row_maximum(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFU, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFU, x, 2);
}

/// A thread's state for two pairs in each tile of pairs, g = lane / 4 and g + 8. There is one for
/// the splits before (`fold`) and one for the current split.
template <class S, int pair_tiles>
struct State {
  float folded_maximum[pair_tiles][2];
  float folded_sum[pair_tiles][2];
  float maximum[pair_tiles][2];  ///< maximum of the scores before scaling
  float sum[pair_tiles][2];      ///< sum of the weights
  float values[pair_tiles][S::kColumnTiles][4];
};

/// Stores the state at the end of a split, or the result.
template <class S, int pair_tiles>
__device__ __forceinline__ void finish_split(const AttentionArgs& args, const AttentionItem& item,
                                             int split, const AttentionPair* pairs,
                                             State<S, pair_tiles>& state) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int p = 0; p < pair_tiles; ++p) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const AttentionPair pair = pairs[p * 16 + half * 8 + lane / 4];
      if (pair.position < split * kAttentionSplit) continue;
      const int head = pair.row_head % args.heads;
      const bool folds = item.end == AttentionEnd::fold;
      const bool last =
          pair.position / kAttentionSplit == split && item.end != AttentionEnd::resume;
      const bool result = last && (folds || split == 0);
      float* stored =
          pair.slot < 0 ? nullptr : attention_state(args, pair.slot + (folds ? 0 : split), head);
      const bool onto = folds && split > 0;  // added to the splits before
      Fold f{state.maximum[p][half], state.sum[p][half], 0, 0};
      if (onto) {
        f = fold(args.scale, state.folded_maximum[p][half], state.folded_sum[p][half], f.maximum,
                 f.sum);
      }
      state.folded_maximum[p][half] = f.maximum;
      state.folded_sum[p][half] = f.sum;
      const float inverse = 1.0F / f.sum;
#pragma unroll
      for (int c = 0; c < S::kColumnTiles; ++c) {
        const int column = warp * S::kColumns + c * 8 + lane % 4 * 2;
        if (column >= args.head_dim) continue;
        float2 value = make_float2(state.values[p][c][half * 2], state.values[p][c][half * 2 + 1]);
        if (onto) {
          const float2 before = *reinterpret_cast<const float2*>(stored + column);
          value = make_float2(fold_value(f, before.x, value.x), fold_value(f, before.y, value.y));
        }
        if (result) {
          const std::size_t at = static_cast<std::size_t>(pair.row_head) * args.head_dim + column;
          reinterpret_cast<__nv_bfloat162*>(args.out)[at / 2] = __floats2bfloat162_rn(
              attention_result(value.x, inverse), attention_result(value.y, inverse));
        } else {
          *reinterpret_cast<float2*>(stored + column) = value;
        }
      }
      if (!result && !folds && warp == 0 && lane % 4 == 0) {
        *reinterpret_cast<float2*>(stored + args.head_dim) = make_float2(f.maximum, f.sum);
      }
    }
  }
}

template <class S, int pair_tiles>
__device__ __forceinline__ void begin_split(const AttentionArgs& args, const AttentionItem& item,
                                            int split, const AttentionPair* pairs,
                                            State<S, pair_tiles>& state) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int p = 0; p < pair_tiles; ++p) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const AttentionPair pair = pairs[p * 16 + half * 8 + lane / 4];
      const bool resumes = item.resumes != 0 && pair.row_head >= 0;
      const float* stored =
          resumes ? attention_state(args, pair.slot + split, pair.row_head % args.heads) : nullptr;
      state.maximum[p][half] = resumes ? stored[args.head_dim] : kNothingSeen;
      state.sum[p][half] = resumes ? stored[args.head_dim + 1] : 0.0F;
#pragma unroll
      for (int c = 0; c < S::kColumnTiles; ++c) {
        const int column = warp * S::kColumns + c * 8 + lane % 4 * 2;
        const bool load = resumes && column < args.head_dim;
        const float2 value =
            load ? *reinterpret_cast<const float2*>(stored + column) : make_float2(0, 0);
        state.values[p][c][half * 2] = value.x;
        state.values[p][c][half * 2 + 1] = value.y;
      }
    }
  }
}

/// Walks tiles [first, end) of one split.
template <class S, int pair_tiles, int step>
__device__ __forceinline__ void walk_tiles(const AttentionArgs& args, const AttentionItem& item,
                                           int first, int end, int used_tiles, std::byte* shared,
                                           State<S, pair_tiles>& state) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int own_tile = warp / 4;  // index in a step
  const int quarter = warp % 4;
  const auto* addresses = reinterpret_cast<const std::uint32_t*>(shared + S::kAddresses);
  const auto* pairs = reinterpret_cast<const AttentionPair*>(shared + S::kPairList);
  auto* maxima = reinterpret_cast<float4*>(shared + S::kMaxima);
  auto* sums = reinterpret_cast<float4*>(shared + S::kSums);
  const std::byte* keys = args.keys + kv_head_of_block(args) * args.kv_head;
  const int steps = (end - first + step - 1) / step;
  // Starts a step's copies of keys or values. If there is no such step, the group of copies is
  // empty.
  const auto copy = [&](const std::byte* from, int ring, int s) {
    if (s < steps) {
      copy_tiles<S>(args, from, addresses + s * step * kAttentionTile,
                    min(step, end - first - s * step),
                    shared + ring + s % S::kStages * S::kStageBytes);
    }
    cp_async_commit();
  };
  for (int s = 0; s < S::kStages; ++s) {
    copy(keys, S::kKeys, s);
    copy(keys + args.values, S::kValues, s);
  }

  for (int s = 0; s < steps; ++s) {
    const int tile = first + s * step;
    const int tiles = min(step, end - tile);
    const int stage = s % S::kStages * S::kStageBytes;
    // Groups come in the order K 0, V 0, K 1, V 1, ...; the V for the stage that the step before
    // freed has not been requested yet.
    if (s == 0) {
      cp_async_wait<2 * S::kStages - 1>();
    } else {
      cp_async_wait<2 * S::kStages - 2>();
    }
    __syncthreads();
    if (s > 0) copy(keys + args.values, S::kValues, s - 1 + S::kStages);

    float scores[pair_tiles][2][4];
    if (own_tile < tiles) {
      score<S>(shared + S::kQueries, shared + S::kKeys + stage,
               own_tile * kAttentionTile + quarter * 16, used_tiles, scores);
      const bool masked = tile + own_tile >= item.visible_tiles;
      const int position =
          (tile + own_tile) * kAttentionTile + quarter * 16 + lane % 4 * 2;  // of scores[..][0][0]
#pragma unroll
      for (int p = 0; p < pair_tiles; ++p) {
        if (p >= used_tiles) break;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int pair = p * 16 + half * 8 + lane / 4;
          float(&low)[4] = scores[p][0];
          float(&high)[4] = scores[p][1];
          const int a = half * 2;
          const int b = a + 1;
          if (masked) {
            const int visible = pairs[pair].position - position;
            if (visible < 0) low[a] = kNothingSeen;
            if (visible < 1) low[b] = kNothingSeen;
            if (visible < 8) high[a] = kNothingSeen;
            if (visible < 9) high[b] = kNothingSeen;
          }
          const float top = row_maximum(fmaxf(fmaxf(low[a], low[b]), fmaxf(high[a], high[b])));
          if (lane % 4 == 0) {
            reinterpret_cast<float*>(maxima + own_tile * S::kPairs + pair)[quarter] = top;
          }
        }
      }
    }
    __syncthreads();
    copy(keys, S::kKeys, s + S::kStages);

    // Computes the maximum after each tile, the factor for the state before it, and the warp's own
    // weights. A pair that has not seen a position of the split so far will not see one later
    // either: its results are NaN, and are never read.
    float scale_before[step][pair_tiles][2];
#pragma unroll
    for (int p = 0; p < pair_tiles; ++p) {
      if (p >= used_tiles) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int pair = p * 16 + half * 8 + lane / 4;
        float own = 0;  // scaled maximum to which the warp's weights refer
#pragma unroll
        for (int t = 0; t < step; ++t) {
          if (t >= tiles) break;
          const float4 four = maxima[t * S::kPairs + pair];
          const float before = state.maximum[p][half];
          const float top = fmaxf(before, fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w)));
          scale_before[t][p][half] = exp2f((before - top) * args.scale);
          if (t == own_tile) own = top * args.scale;
          state.maximum[p][half] = top;
        }
        if (own_tile >= tiles) continue;
        const int a = half * 2;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const __nv_bfloat162 weights =
              __floats2bfloat162_rn(exp2f(__fmaf_rn(scores[p][n][a], args.scale, -own)),
                                    exp2f(__fmaf_rn(scores[p][n][a + 1], args.scale, -own)));
          const float two = __low2float(weights) + __high2float(weights);
          sum = n == 0 ? two : sum + two;
          *reinterpret_cast<__nv_bfloat162*>(shared + S::kWeights + own_tile * S::kWeightBytes +
                                             swizzled<kAttentionTile * 2>(pair, quarter * 2 + n) +
                                             lane % 4 * 4) = weights;
        }
        sum = row_sum(sum);
        if (lane % 4 == 0) {
          reinterpret_cast<float*>(sums + own_tile * S::kPairs + pair)[quarter] = sum;
        }
      }
    }
    cp_async_wait<2 * S::kStages - 1>();
    __syncthreads();

#pragma unroll
    for (int t = 0; t < step; ++t) {
      if (t >= tiles) break;
#pragma unroll
      for (int p = 0; p < pair_tiles; ++p) {
        if (p >= used_tiles) break;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float4 four = sums[t * S::kPairs + p * 16 + half * 8 + lane / 4];
          const float scale = scale_before[t][p][half];
          state.sum[p][half] =
              __fmaf_rn(state.sum[p][half], scale, (four.x + four.y) + (four.z + four.w));
#pragma unroll
          for (int c = 0; c < S::kColumnTiles; ++c) {
            state.values[p][c][half * 2] *= scale;
            state.values[p][c][half * 2 + 1] *= scale;
          }
        }
      }
      accumulate<S>(shared + S::kWeights + t * S::kWeightBytes, shared + S::kValues + stage,
                    t * kAttentionTile, used_tiles, state.values);
    }
  }
}

/// Attends to one item for one kv head in each block. Grid: items * kv heads.
template <int width, int pair_tiles, int step, int stages>
__global__ void __launch_bounds__(Shape<width, pair_tiles, step, stages>::kThreads,
                                  Shape<width, pair_tiles, step, stages>::kBlocks)
    attend_bf16(const AttentionArgs args) {
  using S = Shape<width, pair_tiles, step, stages>;
  const AttentionItem item = item_of_block(args);
  if (item.tiles == 0) return;
  std::byte* shared = dynamic_shared();
  auto* addresses = reinterpret_cast<std::uint32_t*>(shared + S::kAddresses);
  auto* pairs = reinterpret_cast<AttentionPair*>(shared + S::kPairList);
  const int thread = static_cast<int>(threadIdx.x);
  const int used_tiles = (item.rows * args.group + kAttentionPairs - 1) / kAttentionPairs;
  if (thread < S::kPairs) pairs[thread] = attention_pair(args, item, thread);

  State<S, pair_tiles> state;
  const int end = item.first_tile + item.tiles;
  for (int first = item.first_tile; first < end;) {
    const int split = first / kAttentionSplitTiles;
    const int next = min(end, (split + 1) * kAttentionSplitTiles);
    // The addresses of the split before may be overwritten, since barriers have followed its last
    // copies.
    for (int i = thread; i < (next - first) * kAttentionTile; i += S::kThreads) {
      addresses[i] = key_address(args, item, first * kAttentionTile + i);
    }
    __syncthreads();
    if (first == item.first_tile) copy_queries<S>(args, pairs, shared + S::kQueries);
    begin_split<S, pair_tiles>(args, item, split, pairs, state);
    walk_tiles<S, pair_tiles, step>(args, item, first, next, used_tiles, shared, state);
    finish_split<S, pair_tiles>(args, item, split, pairs, state);
    first = next;
  }
  // The counters reuse the memory of the maxima, which are not read after the last tile's barriers.
  merge_ended_rows<__nv_bfloat16>(args, item, pairs, reinterpret_cast<int*>(shared + S::kMaxima));
}

/// About as many blocks of threads as the device runs at once: an H100 has 132 multiprocessors.
/// With fewer, a block uses more threads.
constexpr int kFewBlocks = 132;

template <int width, int pair_tiles, int step, int stages = 2>
void launch_shape(const AttentionArgs& args, int items, cudaStream_t stream) {
  using S = Shape<width, pair_tiles, step, stages>;
  launch(attend_bf16<width, pair_tiles, step, stages>, dim3(items * args.kv_heads),
         dim3(S::kThreads), S::kBytes, stream, args);
}

// Devices with the least shared memory must be able to run these shapes. Shapes with more stages,
// or more tiles at a time, only save time.
static_assert(Shape<64, 1, 2, 2>::kBytes <= kLeastBlockShared);
static_assert(Shape<64, 4, 1, 2>::kBytes <= kLeastBlockShared);
static_assert(Shape<128, 1, 1, 2>::kBytes <= kLeastBlockShared);
static_assert(Shape<128, 4, 1, 2>::kBytes <= kLeastBlockShared);
static_assert(Shape<256, 1, 1, 1>::kBytes <= kLeastBlockShared);
static_assert(Shape<256, 2, 1, 1>::kBytes <= kLeastBlockShared);

}  // namespace

void launch_attention_bf16(const AttentionArgs& args, int items, bool narrow, int block_shared,
                           cudaStream_t stream) {
  const bool few = narrow && items * args.kv_heads <= kFewBlocks;
  if (args.head_dim <= 64) {
    (few      ? launch_shape<64, 1, 2>
     : narrow ? launch_shape<64, 1, 1>
              : launch_shape<64, 4, 1>)(args, items, stream);
  } else if (args.head_dim <= 128) {
    const bool fits = Shape<128, 1, 2, 2>::kBytes <= block_shared;
    (few && fits ? launch_shape<128, 1, 2>
     : narrow    ? launch_shape<128, 1, 1>
                 : launch_shape<128, 4, 1>)(args, items, stream);
  } else if (Shape<256, 2, 1, 2>::kBytes <= block_shared) {
    (narrow ? launch_shape<256, 1, 1> : launch_shape<256, 2, 1>)(args, items, stream);
  } else {
    (narrow ? launch_shape<256, 1, 1, 1> : launch_shape<256, 2, 1, 1>)(args, items, stream);
  }
}

}  // namespace paceline::kernels::cuda
