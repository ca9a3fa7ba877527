// Attention in fp32 without tensor cores, for models computed in fp32: the same items, tiles and
// splits, in plain code. A score is one chain of fused multiply-adds over the head; a sum of
// weights and a weighted value are chains over the positions in order.
#include "kernels/cuda/attention_parts.cuh"

namespace paceline::kernels::cuda {
namespace {

constexpr int kThreads = 128;

/// Shared memory for an item.
struct Shared {
  float* q;                  ///< [pairs][head_dim]
  float* values;             ///< [pairs][head_dim] weighted values of the split
  float* weights;            ///< [pairs][kAttentionTile] scores, then weights
  float* maximum;            ///< [pairs] maximum of the scores of this split
  float* sum;                ///< [pairs] sum of the weights of this split
  float* folded_maximum;     ///< [pairs] maximum over the splits before
  float* folded_sum;         ///< [pairs] sum over the splits before
  float* scale_before;       ///< [pairs] factor of the values before a tile
  AttentionPair* pairs;      ///< [pairs]
  std::uint32_t* addresses;  ///< [kAttentionSplit]
};

constexpr std::size_t shared_bytes(int pairs, int head_dim) {
  return static_cast<std::size_t>(pairs) * (2 * head_dim + kAttentionTile + 5) * sizeof(float) +
         pairs * sizeof(AttentionPair) + kAttentionSplit * sizeof(std::uint32_t);
}

__device__ Shared cut_shared(std::byte* memory, int pairs, int head_dim) {
  Shared s;
  s.q = reinterpret_cast<float*>(memory);
  s.values = s.q + pairs * head_dim;
  s.weights = s.values + pairs * head_dim;
  s.maximum = s.weights + pairs * kAttentionTile;
  s.sum = s.maximum + pairs;
  s.folded_maximum = s.sum + pairs;
  s.folded_sum = s.folded_maximum + pairs;
  s.scale_before = s.folded_sum + pairs;
  s.pairs = reinterpret_cast<AttentionPair*>(s.scale_before + pairs);
  s.addresses = reinterpret_cast<std::uint32_t*>(s.pairs + pairs);
  return s;
}

/// Returns how many positions of a tile a pair sees, counted from the tile's first.
__device__ __forceinline__ int visible(const AttentionPair& pair, int tile) {
  return min(max(pair.position + 1 - tile * kAttentionTile, 0), kAttentionTile);
}

__device__ void walk_tile(const AttentionArgs& args, const Shared& s, int pairs, int tile,
                          const std::uint32_t* addresses) {
  const std::byte* keys = args.keys + kv_head_of_block(args) * args.kv_head;
  const int thread = static_cast<int>(threadIdx.x);
  const auto row = [&](const std::byte* from, int position) {
    return reinterpret_cast<const float*>(from + static_cast<std::size_t>(addresses[position]) *
                                                     args.row_bytes);
  };
  for (int i = thread; i < pairs * kAttentionTile; i += kThreads) {
    const int pair = i / kAttentionTile;
    const int position = i % kAttentionTile;
    if (position >= visible(s.pairs[pair], tile)) continue;
    const float* key = row(keys, position);
    float score = 0;
    for (int d = 0; d < args.head_dim; ++d) {
      score = __fmaf_rn(s.q[pair * args.head_dim + d], key[d], score);
    }
    s.weights[i] = score;
  }
  __syncthreads();
  for (int pair = thread; pair < pairs; pair += kThreads) {
    float* weights = s.weights + pair * kAttentionTile;
    const int positions = visible(s.pairs[pair], tile);
    float maximum = s.maximum[pair];
    for (int i = 0; i < positions; ++i) maximum = fmaxf(maximum, weights[i]);
    s.scale_before[pair] = positions == 0 ? 1.0F : exp2f((s.maximum[pair] - maximum) * args.scale);
    s.maximum[pair] = maximum;
    float sum = 0;
    for (int i = 0; i < positions; ++i) {
      weights[i] = exp2f((weights[i] - maximum) * args.scale);
      sum += weights[i];
    }
    s.sum[pair] = __fmaf_rn(s.sum[pair], s.scale_before[pair], sum);
  }
  __syncthreads();
  for (int i = thread; i < pairs * args.head_dim; i += kThreads) {
    const int pair = i / args.head_dim;
    const int column = i % args.head_dim;
    const int positions = visible(s.pairs[pair], tile);
    float value = s.values[i] * s.scale_before[pair];
    for (int p = 0; p < positions; ++p) {
      value = __fmaf_rn(s.weights[pair * kAttentionTile + p], row(keys + args.values, p)[column],
                        value);
    }
    s.values[i] = value;
  }
  __syncthreads();
}

__device__ void begin_split(const AttentionArgs& args, const AttentionItem& item, const Shared& s,
                            int pairs, int split) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < pairs * (args.head_dim + 2); i += kThreads) {
    const int pair = i / (args.head_dim + 2);
    const int column = i % (args.head_dim + 2);
    float value = column == args.head_dim ? kNothingSeen : 0.0F;
    if (item.resumes != 0) {
      const AttentionPair& p = s.pairs[pair];
      value = attention_state(args, p.slot + split, p.row_head % args.heads)[column];
    }
    float* to = column < args.head_dim    ? s.values + pair * args.head_dim + column
                : column == args.head_dim ? s.maximum + pair
                                          : s.sum + pair;
    *to = value;
  }
}

__device__ void finish_split(const AttentionArgs& args, const AttentionItem& item, const Shared& s,
                             int pairs, int split) {
  const int thread = static_cast<int>(threadIdx.x);
  const bool folds = item.end == AttentionEnd::fold;
  const bool onto = folds && split > 0;  // added to the splits before
  for (int i = thread; i < pairs * args.head_dim; i += kThreads) {
    const int pair = i / args.head_dim;
    const int column = i % args.head_dim;
    const AttentionPair& p = s.pairs[pair];
    if (p.position < split * kAttentionSplit) continue;
    const bool last = p.position / kAttentionSplit == split && item.end != AttentionEnd::resume;
    float* stored =
        p.slot < 0 ? nullptr
                   : attention_state(args, p.slot + (folds ? 0 : split), p.row_head % args.heads);
    float value = s.values[i];
    float sum = s.sum[pair];
    if (onto) {
      const Fold f = fold(args.scale, s.folded_maximum[pair], s.folded_sum[pair], s.maximum[pair],
                          s.sum[pair]);
      value = fold_value(f, stored[column], value);
      sum = f.sum;
    }
    if (last && (folds || split == 0)) {
      reinterpret_cast<float*>(
          args.out)[static_cast<std::size_t>(p.row_head) * args.head_dim + column] =
          attention_result(value, 1.0F / sum);
      continue;
    }
    stored[column] = value;
    if (column == 0 && !folds) {
      stored[args.head_dim] = s.maximum[pair];
      stored[args.head_dim + 1] = sum;
    }
  }
  __syncthreads();
  for (int pair = thread; pair < pairs; pair += kThreads) {
    Fold f{s.maximum[pair], s.sum[pair], 0, 0};
    if (onto) {
      f = fold(args.scale, s.folded_maximum[pair], s.folded_sum[pair], f.maximum, f.sum);
    }
    s.folded_maximum[pair] = f.maximum;
    s.folded_sum[pair] = f.sum;
  }
}

/// Attends to one item for one kv head in each block. Grid: items * kv heads.
__global__ void __launch_bounds__(kThreads, 2)
    attend_f32(const AttentionArgs args, int most_pairs) {
  const AttentionItem item = item_of_block(args);
  if (item.tiles == 0) return;
  const Shared s = cut_shared(dynamic_shared(), most_pairs, args.head_dim);
  const int thread = static_cast<int>(threadIdx.x);
  const int pairs = item.rows * args.group;
  for (int i = thread; i < pairs; i += kThreads) s.pairs[i] = attention_pair(args, item, i);
  __syncthreads();
  for (int i = thread; i < pairs * args.head_dim; i += kThreads) {
    const std::size_t row_head = s.pairs[i / args.head_dim].row_head;
    s.q[i] = reinterpret_cast<const float*>(args.q)[row_head * args.head_dim + i % args.head_dim];
  }
  const int end = item.first_tile + item.tiles;
  for (int first = item.first_tile; first < end;) {
    const int split = first / kAttentionSplitTiles;
    const int next = min(end, (split + 1) * kAttentionSplitTiles);
    for (int i = thread; i < (next - first) * kAttentionTile; i += kThreads) {
      s.addresses[i] = key_address(args, item, first * kAttentionTile + i);
    }
    begin_split(args, item, s, pairs, split);
    __syncthreads();
    for (int tile = first; tile < next; ++tile) {
      walk_tile(args, s, pairs, tile, s.addresses + (tile - first) * kAttentionTile);
    }
    finish_split(args, item, s, pairs, split);
    first = next;
    __syncthreads();
  }
  merge_ended_rows<float>(args, item, s.pairs, reinterpret_cast<int*>(s.maximum));
}

}  // namespace

static_assert(shared_bytes(max_pairs(128), 128) <= kLeastBlockShared);
static_assert(shared_bytes(max_pairs(kMaxHeadDim), kMaxHeadDim) <= kLeastBlockShared);

void launch_attention_f32(const AttentionArgs& args, int items, cudaStream_t stream) {
  const int pairs = max_pairs(args.head_dim);
  launch(attend_f32, dim3(items * args.kv_heads), dim3(kThreads),
         shared_bytes(pairs, args.head_dim), stream, args, pairs);
}

}  // namespace paceline::kernels::cuda
