// Kernels of one instruction set: plain functions on plain data. Each does a part of an operation
// on the calling thread; the backend cuts operations into parts and shares them among threads. As
// no inline function may be compiled here (see simd.hpp), structures hold data only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/limits.hpp"

namespace paceline::kernels::cpu {

/// Outputs of one weight panel. N is padded with zero rows to a multiple of this.
inline constexpr int kPanelWidth = 32;
/// Readable bytes behind a packed weight, as steps over K may read past its end.
inline constexpr std::size_t kPanelSlack = 4096;
/// Most partial sums of a segmented product: 2^6.
inline constexpr int kMaxSegments = 64;
/// Levels of the tree over the segments, the result's included.
inline constexpr int kMostSegmentLevels = 7;
/// Tokens that the sampler skips together (kChunk), and tokens of one unit of its work (kSpan).
inline constexpr int kChunk = 64;
inline constexpr int kSpan = 64 * kChunk;
/// Words from one row head's query to the next in attention's scratch: the widest key, plus a cache
/// line so that row heads do not all begin in the same set of a cache.
inline constexpr int kQueryStride = kMaxLatentDim + 16;
/// Most row tiles that take a step of attention together.
inline constexpr int kRowTilesAbreast = 2;

/// out = in * weight^T + bias. Rows are cut into `row_blocks` blocks.
struct LinearArgs {
  const std::byte*
      weight;  ///< [panels][k][kPanelWidth] fp32, or [panels][k / 2][kPanelWidth][2] bf16
  int n, k, segments;
  int in_width;         ///< elements of an input row: k, or k - 1 if k was padded
  const float* bias;    ///< [n] or null
  const std::byte* in;  ///< [rows][in_width] of the weight's dtype
  std::byte* packed;    ///< packed input by row block, room for max_rows rows in each
  std::byte* scratch;   ///< [Blocking::scratch_bytes] the calling thread's, 64-byte aligned
  float* out;           ///< [rows][out_stride], from column `first_column` of n on
  std::ptrdiff_t out_stride;
  int first_column;
  int rows, row_blocks;
  int threads;  ///< threads that share the panels
};

/// RMSNorm or LayerNorm of rows [first, last), after adding delta.
struct NormArgs {
  float* x;             ///< [rows][width]
  const float* delta;   ///< [rows][width] or null
  const float* weight;  ///< [width]
  const float* bias;    ///< [width], of a LayerNorm
  std::byte* out;       ///< [rows][width] of bf16 or fp32
  float epsilon;
  int width;
  bool bf16;
};

/// out = silu(gate) * up.
struct SwigluArgs {
  const float* gate;  ///< [rows][stride], of which `width` count
  const float* up;    ///< as gate
  std::byte* out;     ///< [rows][out_stride] of bf16 or fp32
  std::ptrdiff_t stride, out_stride;
  int rows, width;
  bool bf16;
};

/// The weighted sum of a row's experts: in order within a segment, segments in the binary tree.
struct CombineArgs {
  const float* results;        ///< [places][width]
  const std::int32_t* places;  ///< [chosen] of the row, ascending; -1: left out
  const std::int32_t* ids;     ///< [chosen] indices of experts, ascending
  const float* weights;        ///< [chosen]
  float* out;                  ///< [width]
  int chosen, width;
  int segments, of_segment;  ///< number of segments, and experts of each
  std::int32_t first;        ///< index of the first segment's first expert
};

/// A row of the q/k/v stage. Its k and v go to position `slot` of a block.
struct RopeRow {
  const float* qkv;      ///< [(heads + 2 kv_heads) * head_dim] q | k | v
  const float* cos_sin;  ///< [head_dim] of the RopeTable, for the row's position
  std::byte* q_out;      ///< [heads * stored_dim] of the kv dtype
  std::byte* layer;      ///< the layer's part of the block
  int slot;              ///< position within the block
};
struct RopeArgs {
  int heads, kv_heads, head_dim;
  int stored_dim;  ///< elements of a head in q_out and in the cache: zeros follow head_dim
  int block;
  bool bf16;
  const float* q_norm;  ///< [head_dim] or null
  const float* k_norm;
  float epsilon;
};

/// A row of latent attention's stage after the projections (Operations::latent_rope_and_store()).
struct LatentRow {
  const float* q;         ///< [heads * (nope + rope)]
  const float* kv;        ///< [rank + rope]
  const float* cos_sin;   ///< [rope] of the RopeTable, for the row's position
  std::byte* nope_out;    ///< [nope] for the first head
  std::size_t nope_head;  ///< elements from one head to the next in nope_out
  std::byte* q_out;       ///< [heads * (rank + rope)]
  std::byte* vector;      ///< [rank + rope] in the cache
};
struct LatentArgs {
  int heads, nope, rope, rank;
  bool bf16;          ///< dtype of results
  const float* norm;  ///< [rank]
  float epsilon;
};

/// Copy of one position's k and v of one kv head, between blocks that may differ in size.
struct SlotCopy {
  const std::byte *from_k, *from_v;  ///< K and V of the kv head, at the beginning of the block
  std::byte *to_k, *to_v;
  int from_block, to_block;  ///< positions of each block
  int from_slot, to_slot;
  int head_dim;
  bool bf16;
};

/// Neighbouring rows of one sequence that attend.
struct AttentionRows {
  const std::int32_t* blocks;  ///< block table of the sequence
  const std::byte* q;          ///< first row's first head
  std::byte* out;              ///< result of the first row's first head
  int rows;
  int first_position;  ///< position of the first row
  int seen;            ///< Segment::seen
  /// path[i] is the place of position path_base + i, for rows on a branch of a tree, up to the last
  /// position that the last row sees. Null: every position lies in its own place.
  const std::int32_t* path;
  int path_base;
};

/// Positions of a segment. Each segment has a softmax of its own, and the segments' results are
/// added in order. So different threads may compute the segments of a row without changing its
/// bits.
inline constexpr int kAttentionSegment = 512;

/// Elements from one row to the next, and from one head to the next.
struct HeadStrides {
  std::size_t row, head;
};

/// Attention of rows of one or more sequences, for all query heads of some neighbouring kv heads.
struct AttentionArgs {
  const std::byte* cache;   ///< the layer in block 0: K of the first kv head, or latent vectors
  std::size_t values;       ///< bytes from K to V of a kv head
  std::size_t head_bytes;   ///< bytes from one kv head to the next, of K and of V
  std::size_t block_bytes;  ///< bytes from one block to the next
  int block;                ///< positions of a block
  int head_dim;             ///< elements of a query and of a key
  int value_dim;            ///< elements of a value
  int out_dim;              ///< elements of a result: the first ones of a value that ends in zeros
  bool latent;              ///< the cache has latent vectors, and `heads` is 1
  float scale;              ///< factor of scores
  int heads;                ///< kv heads
  int group;                ///< query heads of each kv head
  bool bf16;                ///< dtype of q, out and cache
  HeadStrides q, out;
  const AttentionRows* sequences;
  int count;      ///< number of sequences
  int row_heads;  ///< row heads of a kv head: rows of all sequences times group
  /// Number of positions of the common prefix, a multiple of kAttentionTile: they lie in the same
  /// blocks for all sequences, in their own places, and all rows see them. They are read once.
  int shared;
  float* scratch;  ///< attention_scratch_floats() floats, 64-byte aligned
  /// States of `segments` segments from position `first` on, attention_state_floats() floats each;
  /// attention_sum() combines them into the results. Null: this call computes the results.
  float* states;
  int first, segments;
};

/// Result of a scan of tokens [begin, end), with scaled logits s = logit * inverse_temperature.
struct ScanResult {
  float max;   ///< largest s
  double sum;  ///< sum of exp(s - max)
  bool bad;    ///< there is a NaN or +infinity
};

/// Noise of one row: Philox key and counter words (runtime/core/philox.hpp).
struct NoiseArgs {
  std::uint32_t key[2];
  std::uint32_t step;
  std::uint32_t stream[2];
};

/// Ranking by s + Gumbel noise, largest first, lowest id on ties. Ranked are the tokens whose s is
/// above keep_value, or equal to it with an id <= keep_id.
struct RankArgs {
  const float* logits;     ///< [vocab]
  const float* chunk_max;  ///< [vocab / kChunk, rounded up] maxima of s
  float inverse_temperature;
  float keep_value;
  std::int32_t keep_id;
  NoiseArgs noise;
};

/// Best sizes for a call of ProductKernels::linear().
struct Blocking {
  bool packs;  ///< pack_rows() has something to do
  int panels;  ///< panels of a unit of work
  int blocks;  ///< most row blocks
  std::size_t scratch_bytes;
};

/// Matrix products with weights of one dtype.
struct ProductKernels {
  /// Most rows of a row block.
  int max_rows;
  /// Best blocking for a product's rows, row blocks, k and segments.
  Blocking (*blocking)(const LinearArgs& args);
  /// Bytes of an input row when packed.
  std::size_t (*packed_row_bytes)(int k, int segments);
  /// The first row of a row block; for block `row_blocks` the number of rows.
  int (*first_row)(const LinearArgs& args, int block);
  /// Packs row blocks [first_block, last_block) of `in` in the order in which they are multiplied.
  void (*pack_rows)(const LinearArgs& args, int first_block, int last_block);
  /// Multiplies row blocks [first_block, last_block) by panels [first, last).
  void (*linear)(const LinearArgs& args, int first, int last, int first_block, int last_block);
  /// Computes silu(gate) * up for a weight of gates and then as many ups: panels [first, last) of
  /// the gates, and their ups. `out`: [rows][n / 2] of bf16. For one segment, no bias, and n a
  /// multiple of two panels. Null: linear() and swiglu() are as fast.
  void (*linear_swiglu)(const LinearArgs& args, std::byte* out, int first, int last,
                        int first_block, int last_block);
};

struct KernelTable {
  const char* isa;
  ProductKernels f32, bf16;
  /// Least rows of a thread for which parts of a pass are faster than operations that threads
  /// share. With parts, every thread reads all weights from the third-level cache.
  int many_rows;

  void (*add_rmsnorm)(const NormArgs& args, int first, int last);
  void (*add_layernorm)(const NormArgs& args, int first, int last);
  /// out[i] = in[i] * sigmoid(1.702 in[i]), i below width, of bf16 or fp32.
  void (*quick_gelu)(const float* in, int width, bool bf16, std::byte* out);
  void (*swiglu)(const SwigluArgs& args);
  void (*combine)(const CombineArgs& args);
  /// x[i] += sigmoid(gate) * delta[i], for i below width.
  void (*add_gated)(float* x, const float* delta, float gate, int width);
  void (*rope_and_store)(const RopeArgs& args, const RopeRow& row);
  void (*latent_rope_and_store)(const LatentArgs& args, const LatentRow& row);
  void (*copy_slot)(const SlotCopy& copy);
  void (*attention)(const AttentionArgs& args);
  /// Combines the states of all segments from position 0 on.
  void (*attention_sum)(const AttentionArgs& args);

  /// Scans tokens [begin, end), begin a multiple of kChunk; fills chunk_max (indexed from token 0).
  ScanResult (*scan)(const float* logits, int begin, int end, float inverse_temperature,
                     float* chunk_max);
  /// Writes the tokens of [begin, end) with s >= cut, in id order; returns their number.
  int (*gather)(const float* logits, const float* chunk_max, int begin, int end,
                float inverse_temperature, float cut, std::int32_t* ids, float* values);
  /// out[i] = exp(in[i] - max).
  void (*exponentials)(const float* in, float max, int count, float* out);
  /// Updates the ordered list of the `count` best tokens so far with the tokens of [begin, end);
  /// tokens that are in it already may come again. Empty places hold -infinity and the largest id.
  void (*rank)(const RankArgs& args, int begin, int end, int count, float* values,
               std::int32_t* ids);
  /// Random bits and Gumbel noise of tokens [64 chunk, 64 chunk + 64).
  void (*noise_chunk)(const NoiseArgs& noise, std::uint32_t chunk, std::uint32_t* bits,
                      float* gumbel);
  /// Elementwise exp, log and Gumbel transform of 16 values, for tests of their accuracy.
  void (*math16)(const float* x, const std::uint32_t* bits, float* exp_x, float* log_x,
                 float* gumbel);
};

/// Number of fp32 values of scratch for an attention call with the sizes in `args`. `row_heads`:
/// most row heads of a kv head. `path`: positions of the longest path.
[[nodiscard]] std::size_t attention_scratch_floats(const AttentionArgs& args, int row_heads,
                                                   int path);
/// Number of fp32 values of a segment's state, in whole cache lines.
[[nodiscard]] std::size_t attention_state_floats(int heads, int row_heads, int value_dim);

/// Tables of all instruction sets, whether this machine supports them or not: calls into an
/// unsupported one fault.
namespace amx_bf16 {
[[nodiscard]] const KernelTable& table();
}
namespace avx512_bf16 {
[[nodiscard]] const KernelTable& table();
}
namespace avx512 {
[[nodiscard]] const KernelTable& table();
}
namespace avx2 {
[[nodiscard]] const KernelTable& table();
}
namespace portable {
[[nodiscard]] const KernelTable& table();
}

/// The table of a supported instruction set ("auto": the best); throws UsageError naming the
/// choices.
[[nodiscard]] const KernelTable& kernel_table(const char* isa);

}  // namespace paceline::kernels::cpu
