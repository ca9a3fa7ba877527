// The operations of a decoder, behind one interface. A backend (cpu/, cuda/) implements each with
// batch-invariant arithmetic:
//
//  * every output row depends only on its own input row: it is reduced over K in one fixed order,
//    which depends neither on the number of rows or threads nor on the other rows;
//  * attention walks the keys in fixed tiles of kAttentionTile positions aligned to position 0,
//    with online softmax in tile order; a backend may split the keys, and adds the splits in order.
//    KV block size, other rows and number of threads change nothing;
//  * row-parallel projections are sums of `segments` partial sums over equal K-ranges, added in one
//    binary tree (neighbours first), so that ranks that hold sub-trees complete the same tree.
//
// A pass takes a batch through a decoder: begin() reads the batch once, and run() provides the
// operations on its rows, or on parts of them, which a backend may record and replay. Asynchronous
// backends keep the order of the calls; sample(), rank(), read(), pass_seconds() and busy_seconds()
// wait for their results.
//
// Pointers refer to memory of the backend (host memory for cpu), spans to host memory. Activations
// between operations are fp32; inputs of matrix products and KV are in the model's dtype (bf16
// rounds to nearest even). A backend is called from one thread; its operations may use threads of
// its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/error.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/picture_rows.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/types.hpp"
#include "runtime/core/weight_source.hpp"

namespace paceline::kernels {

/// Positions of an online-softmax step. Part of the definition of the result.
inline constexpr int kAttentionTile = 64;

/// The reason why the backend of this name (BackendInfo::name) cannot compute a model of this
/// configuration: the key in config.json, the value found and the value expected. Empty: it can.
[[nodiscard]] std::string unsupported(std::string_view backend, const ModelConfig& config);

/// Memory of a backend, zero-filled when made, aligned to at least 64 bytes.
class Buffer {
 public:
  virtual ~Buffer() = default;
  [[nodiscard]] virtual std::byte* data() = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;  ///< bytes
};

/// A range of addresses whose first part is memory, which can grow and shrink in place.
class ElasticBuffer : public Buffer {
 public:
  /// Sets the number of bytes that are memory, at most `most` of Backend::reserve(). The memory
  /// that stays keeps its contents and addresses; new memory is zero-filled. Memory beyond `bytes`
  /// goes back to the system or the device, in whole pages. Waits for pending work of the backend.
  /// Throws as allocate() does.
  virtual void resize(std::size_t bytes) = 0;
};

/// Rows of an embedding table, one for each token, in the form that this backend reads.
class Embedding {
 public:
  virtual ~Embedding() = default;
};

/// Number of segments of a matrix that is not cut along K at any degree of tensor parallelism: the
/// backend chooses it from k only.
inline constexpr int kAnySegments = 0;

/// A weight matrix [n, k] packed for this backend, with an optional bias [n].
class Linear {
 public:
  virtual ~Linear() = default;
  [[nodiscard]] virtual int n() const = 0;
  [[nodiscard]] virtual int k() const = 0;
  [[nodiscard]] virtual std::size_t bytes() const = 0;  ///< bytes of the packed weight
};

/// Neighbouring experts of a layer: gated MLPs of one shape. Each row uses some of them.
struct ExpertBank {
  struct Expert {
    std::unique_ptr<Linear> gate_up;  ///< [2 * width, hidden] by Backend::pack_gate_up()
    std::unique_ptr<Linear> down;     ///< [hidden, width] by Backend::pack() in one segment
  };
  std::unique_ptr<Buffer> memory;  ///< memory of the experts; null where processes share it
  std::vector<Expert> experts;
  std::int32_t first = 0;  ///< index of the first one in the layer
  /// Number of canonical segments, a power of two: neighbouring ranges of equally many experts.
  int segments = 1;
};

/// The experts that rows of a pass use.
struct ExpertChoices {
  int chosen = 0;               ///< experts of each row
  std::int32_t* ids = nullptr;  ///< [rows, chosen] indices in the layer, ascending in each row
  float* weights = nullptr;     ///< [rows, chosen] factors of the experts' results
  bool given = false;           ///< ids come from an earlier computation; only weights are computed
};

/// Part of a stored matrix: rows from first_row on, columns from first_column on.
struct MatrixSlice {
  const TensorView* matrix = nullptr;  ///< [rows, columns]
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
};

/// Memory for a packed matrix: a part of an ExpertBank's memory, or memory that several processes
/// map (for a backend that computes from host memory).
struct PackPlace {
  /// Zero-filled, Backend::packed_bytes() or expert_bytes() bytes, aligned to 64 bytes; must
  /// outlive the matrix. Empty: the matrix gets memory of its own.
  std::span<std::byte> memory;
  bool packs = true;  ///< false: another process packs, before the matrix is computed with
};

/// A weight that cannot be used: NaN, infinite, or stored in fp32 and outside the range of bf16.
/// The catcher names the tensor.
struct UnusableWeight : DataError {
  struct Element {
    std::size_t slice = 0;             ///< index of the slice
    std::int64_t row = 0, column = 0;  ///< in the stored matrix
  };
  UnusableWeight(const Element& where, const std::string& message)
      : DataError(message), place(where) {}
  Element place;
};

/// Logits from which nothing can be sampled: one is NaN or infinite. The catcher names the weights.
struct UnusableLogits : DataError {
  using DataError::DataError;
  /// The error shown to the user, for weights at `path`.
  [[nodiscard]] DataError of_weights(const std::string& path) const {
    return DataError(path + ": what these weights compute overflows: logits are NaN or infinite");
  }
};

/// Shape of a rank's share of the KV cache. One block holds `block` positions of every layer: a
/// contiguous chunk, so that it moves between ranks in one piece. A layer keeps k and v of each kv
/// head, or one latent vector for all heads.
struct KvShape {
  int layers = 0;
  int kv_heads = 0;  ///< on this rank; 1 for latent vectors
  /// Elements of k and of v, or of a latent vector. On the cpu backend it may exceed the heads'
  /// size, to be a multiple of the tile unit's step: k and v then end in zeros.
  int head_dim = 0;
  int block = 16;  ///< positions; a multiple of 16
  DType dtype = DType::bf16;
  /// Number of leading elements of a latent vector that are its value; all its elements are its
  /// key. Every rank of a group keeps latent vectors whole. 0: there are k and v by head instead.
  int latent_values = 0;
  /// Experts of a position, in all layers together; they are kept behind the last layer as [block]
  /// [routed] int16, the same on every rank of a group. 0: none are kept.
  int routed = 0;

  [[nodiscard]] bool latent() const { return latent_values > 0; }
  [[nodiscard]] int value_dim() const { return latent() ? latent_values : head_dim; }
  /// Vectors of head_dim elements that a layer keeps of a position.
  [[nodiscard]] int vectors() const { return latent() ? 1 : 2 * kv_heads; }
  [[nodiscard]] std::size_t vector_bytes() const {  ///< one vector, for all positions of a block
    return static_cast<std::size_t>(head_dim) * block * size_of(dtype);
  }
  [[nodiscard]] std::size_t layer_bytes() const { return vectors() * vector_bytes(); }
  [[nodiscard]] std::size_t routing_offset() const { return layers * layer_bytes(); }
  /// A multiple of 64 bytes, so that blocks stay aligned, and of head_dim elements, the unit in
  /// which some backends count offsets of blocks.
  [[nodiscard]] std::size_t routing_bytes() const {
    if (routed == 0) return 0;
    const std::size_t unit = std::lcm(std::size_t{64}, head_dim * size_of(dtype));
    const std::size_t bytes = static_cast<std::size_t>(block) * routed * sizeof(std::int16_t);
    return (bytes + unit - 1) / unit * unit;
  }
  [[nodiscard]] std::size_t block_bytes() const { return routing_offset() + routing_bytes(); }
};

/// Consecutive rows of a ragged batch that belong to one sequence: a chain at consecutive
/// positions, or a tree of drafted tokens.
///
/// Row i of a tree has position first_position + depth(i). It sees the positions before
/// first_position and its ancestors; its bits are those of a chain of its ancestors. As several
/// rows may have one position, row i's k and v lie in the cache in the place of position
/// first_position + i; move_slots() moves the accepted ones to their own places. A row comes after
/// its parent; in depth-first order the rows of a path are computed together.
///
/// A tree may grow over several passes: `before` of its rows were computed in earlier passes, and
/// their k and v are in the cache; the segment's rows come after these.
///
/// Segments of one batch are independent: none reads k or v that another one writes in the same
/// pass.
struct Segment {
  int first_row = 0;  ///< index in the batch
  int rows = 0;
  int first_position = 0;  ///< absolute position of the first row; row i sees positions <= its own
  const std::int32_t* blocks = nullptr;  ///< block table: block b holds positions [b*block, ...)
  /// [before + rows] index in the tree of each row's parent, smaller than the row's own; -1: the
  /// row has none and is at first_position. Null: a chain.
  const std::int32_t* parents = nullptr;
  int before = 0;  ///< rows of the tree that earlier passes computed
  /// Number of positions, from 0 on, that every row of a chain sees, even after its own position.
  /// Earlier passes or other ranks have stored the positions outside the chain. 0: each row sees
  /// the positions up to its own.
  int seen = 0;
};

/// Further input of a batch that has rows of pictures. Like the rest of the batch, it is the same
/// on all ranks of a group.
struct PictureInput {
  /// [rows] positions for rotary embedding, below Batch::positions. Empty: each row's position.
  std::span<const RotaryPosition> rotary;
  /// [rows] embedding that replaces the one of the row's token, fp32 in host memory; null: nothing
  /// is replaced. Empty: nothing is replaced in any row.
  std::span<const float* const> embeddings;

  [[nodiscard]] bool empty() const { return rotary.empty() && embeddings.empty(); }
};

/// Neighbouring rows of a batch.
struct RowRange {
  int first = 0;
  int rows = 0;
};

/// Input of one pass. Memory that it points to stays as it is until the pass has run.
struct Batch {
  std::span<const TokenId> tokens;           ///< [rows]
  std::span<const Segment> segments;         ///< in row order, covering all rows, or `attended`
  std::span<const std::int32_t> logit_rows;  ///< rows whose logits are wanted, ascending
  std::int32_t heads = 0;  ///< query heads of this rank, a multiple of kv.kv_heads
  KvShape kv;
  std::byte* cache = nullptr;  ///< block 0 of the KV pool, memory of the backend
  std::int32_t vocab = 0;      ///< all tokens are below it
  std::int32_t positions = 0;  ///< all positions are below it
  PictureInput pictures = {};
  /// Rows whose attention this pass computes, and whose KV it stores; other ranks do this for the
  /// other rows. Absent: all rows. Owners of batches with a range are not recordable (PassTraits).
  std::optional<RowRange> attended = {};
};

/// Neighbouring rows that the operations of a pass compute: rows of the batch, and logit rows. Some
/// backends add padding rows behind the last row of the batch, so that passes have few different
/// sizes. Values of padding rows do not matter.
struct PassRows {
  int rows = 0;
  int logit_rows = 0;
  int first_row = 0;        ///< index in the batch
  int first_logit_row = 0;  ///< index into Batch::logit_rows
  bool operator==(const PassRows&) const = default;
};

/// Properties that all passes of one owner share.
struct PassTraits {
  std::size_t weight_bytes = 0;  ///< bytes of weights that a pass reads
  /// All operations are the backend's (sums over ranks are not), and no two rows' results share
  /// memory. So parts of a pass may be at different operations at the same time.
  bool rows_apart = false;
  /// The host never waits for the backend within a pass, so a pass may be captured and replayed.
  bool recordable = true;
};

/// A backend's recording of the passes of one owner, which have one sequence of operations over one
/// set of buffers.
class Recording {
 public:
  virtual ~Recording() = default;
};

/// Table of rotary embedding: cos and sin of position * inv_frequency[i], pairs (i, i + head_dim /
/// 2).
struct RopeTable {
  /// [max_position][head_dim]: cos[head_dim/2], then sin[head_dim/2].
  const float* cos_sin = nullptr;
  int head_dim = 0;
  int max_position = 0;
  /// Number of pairs that each part of a RotaryPosition rotates, in order: frame, row, column. The
  /// numbers add up to head_dim / 2 where a batch has PictureInput::rotary.
  std::array<int, 3> sections{};
};

/// Rule by which a row's experts are chosen and weighted.
struct Routing {
  int experts = 0;          ///< number of experts of a layer
  bool normalised = false;  ///< weights of the chosen experts add up to `scale`
  /// True: scores are sigmoids of the logits, so only the chosen experts' logits count. False: they
  /// are the softmax over all experts.
  bool sigmoid = false;
  const float* correction = nullptr;  ///< [experts] added to scores for choosing; null: nothing
  /// Number of groups of neighbouring experts, and number of groups that a row uses. It uses the
  /// groups with the largest sums of their two best scores, the lowest index first on ties. Its
  /// experts are chosen within these groups.
  int groups = 1;
  int chosen_groups = 1;
  float scale = 1.0F;  ///< factor of all weights
};

/// Sizes of latent attention, its scale and its norm.
struct LatentParams {
  int heads = 0;                ///< query heads of this rank
  int nope = 0;                 ///< elements of a query head without rotary embedding
  int rope = 0;                 ///< rotated elements, in a query head and in the common key
  int rank = 0;                 ///< elements of a latent vector that are not rotated: its value
  float scale = 1.0F;           ///< factor of scores
  const float* norm = nullptr;  ///< [rank] RMSNorm of a latent vector's values
  float norm_epsilon = 0;

  [[nodiscard]] int width() const { return rank + rope; }  ///< elements of a latent vector
};

/// Inputs of the q/k/v stage after the projection.
struct QkvParams {
  int heads = 0;     ///< query heads of this rank
  int kv_heads = 0;  ///< kv heads of this rank
  int head_dim = 0;
  const float* q_norm = nullptr;  ///< [head_dim] RMSNorm of each query head (Qwen3); null: none
  const float* k_norm = nullptr;  ///< [head_dim]
  float norm_epsilon = 0;
};

enum class Gelu : std::uint8_t {
  exact,  ///< x / 2 * (1 + erf(x / sqrt(2)))
  quick,  ///< x * sigmoid(1.702 x)
};

/// The operations of a pass on rows(): all rows, or a part that consists of whole segments. To its
/// operations a part is a pass of its own: row 0 is the part's first row, and pointers refer to
/// this row's place. embed(), store_experts() and gather_rows() compute the part's rows. The
/// operations of attention (rope_and_store(), attention(), latent_rope_and_store() and
/// latent_attention()) compute the rows of attended(); their row 0 is the first of these. The other
/// operations compute as many rows as they are told. Used by one thread.
class Operations {
 public:
  virtual ~Operations() = default;
  [[nodiscard]] virtual const PassRows& rows() const = 0;
  /// The rows among rows() that are in Batch::attended, without logit rows.
  [[nodiscard]] virtual PassRows attended() const { return rows(); }

  /// out[r, :] = table[token of row r, :] in fp32; -0 where the table does not have the row. Adding
  /// -0 changes no number: where each rank has a part of the table, the sum over ranks is the row,
  /// to the bit. A row of a picture is taken from PictureInput::embeddings.
  virtual void embed(const Embedding& table, float* out) = 0;

  /// x[r, :] += delta[r, :] (skipped when delta is null), then out[r, :] = x / rms(x) * weight,
  /// rounded to `dtype`. x, delta: [rows, width] fp32; out: [rows, width] of dtype.
  virtual void add_rmsnorm(float* x, const float* delta, const float* weight, float epsilon,
                           int rows, int width, DType dtype, std::byte* out) = 0;

  /// As add_rmsnorm(), but out[r, :] = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias.
  /// A backend without towers throws.
  virtual void add_layernorm(float* /*x*/, const float* /*delta*/, const float* /*weight*/,
                             const float* /*bias*/, float /*epsilon*/, int /*rows*/, int /*width*/,
                             DType /*dtype*/, std::byte* /*out*/) {
    throw Error(ExitCode::internal, "this backend has no operations of towers");
  }

  /// out = gelu(in), rounded to dtype. in: [rows, width] fp32; out: [rows, width] of dtype. A
  /// backend without towers throws.
  virtual void gelu(Gelu /*kind*/, const float* /*in*/, int /*rows*/, int /*width*/,
                    DType /*dtype*/, std::byte* /*out*/) {
    throw Error(ExitCode::internal, "this backend has no operations of towers");
  }

  /// x[r, :] += bias. x: [rows, width] fp32; bias: [width]. For row-parallel projections, whose
  /// bias is added after the sum over ranks.
  virtual void add_bias(float* x, const float* bias, int rows, int width) = 0;

  /// out = in * weight^T (+ bias). in: [rows, k] of the weight's dtype; out: [rows, n] fp32.
  virtual void linear(const Linear& weight, const std::byte* in, int rows, float* out) = 0;

  /// Normalises q and k (where params has norms) and rotates them, writes q rounded to kv.dtype,
  /// and stores k and v in the cache. qkv: [rows, (heads + 2 kv_heads) * head_dim] fp32, q | k | v.
  /// q_out: [rows, heads * kv.head_dim] of kv.dtype.
  virtual void rope_and_store(const QkvParams& params, const RopeTable& rope, int layer,
                              const float* qkv, std::byte* q_out) = 0;

  /// Attention of every row over the positions that it sees of its sequence's cache, scaled by
  /// 1/sqrt(head_dim). q: [rows, heads * kv.head_dim] of kv.dtype; out: [rows, heads * head_dim] of
  /// kv.dtype. v must be finite at all positions of a sequence: otherwise even rows that do not see
  /// the position may become NaN.
  virtual void attention(const QkvParams& params, int layer, const std::byte* q,
                         std::byte* out) = 0;

  /// Normalises the first `rank` elements of latent vectors kv, [rows, rank + rope] fp32, rotates
  /// the last `rope`, and stores the vectors in the cache. Splits queries q, [rows, heads * (nope +
  /// rope)] fp32: rotates the last `rope` elements of each head, which become the last ones of the
  /// head's `width()` elements of q_out, [rows, heads * width()], and rounds the others into
  /// nope_out, [heads, rows, nope]; both of kv.dtype. Elements of a rotated pair are neighbours in
  /// the inputs (2i and 2i + 1), and i and i + rope / 2 in the results.
  virtual void latent_rope_and_store(const LatentParams& params, const RopeTable& rope, int layer,
                                     const float* q, const float* kv, std::byte* nope_out,
                                     std::byte* q_out) = 0;

  /// Causal attention of every row over its sequence's latent vectors, as attention() does it. A
  /// head's scores are products of its query with whole vectors, and its result is the weighted
  /// mean of their first `rank` elements. q: [rows, heads * width()] of kv.dtype; out: [heads,
  /// rows, rank] of kv.dtype.
  virtual void latent_attention(const LatentParams& params, int layer, const std::byte* q,
                                std::byte* out) = 0;

  /// out = silu(gate) * up, rounded to dtype. gate_up: [rows, 2 * width] fp32, gate | up.
  virtual void swiglu(const float* gate_up, int rows, int width, DType dtype, std::byte* out) = 0;

  /// linear() and then swiglu(), with the bits of these two for a weight packed by pack() in one
  /// segment. gate_up: n = 2 * width, packed by pack_gate_up() or pack(). work: [rows, n] fp32 that
  /// a backend may use; null where it does not (Backend::gates_in_work()). dtype: the weight's.
  /// out: [rows, width] of dtype.
  virtual void linear_swiglu(const Linear& gate_up, const std::byte* in, int rows, float* work,
                             DType dtype, std::byte* out) {
    linear(gate_up, in, rows, work);
    swiglu(work, rows, gate_up.n() / 2, dtype, out);
  }

  /// Chooses the experts of each row: those of the largest scores, the lowest index first on ties.
  /// Their weights are from their scores without correction. A row with a NaN among its logits has
  /// a NaN among its weights. Where ids are given, only weights are computed, for these experts;
  /// their bits are as if the same experts had been chosen. logits: [rows, experts] fp32.
  virtual void choose_experts(const float* logits, int rows, const Routing& routing,
                              const ExpertChoices& choices) = 0;

  /// Stores each row's experts in the row's place of the cache (KvShape::routed), from element
  /// `first` on. Does nothing where the cache keeps no experts.
  virtual void store_experts(const ExpertChoices& choices, int first) = 0;

  /// out[r, :] = the sum of weight * down(silu(gate) * up) over the row's experts that the bank
  /// has. Within a segment experts are added in ascending order, by fused multiply-adds beginning
  /// at 0; segments are added in the binary tree. in: [rows, hidden] of the weights' dtype; work:
  /// [rows, Backend::expert_row_bytes()] that the backend may use, aligned to 64 bytes; out: [rows,
  /// hidden] fp32.
  virtual void experts(const ExpertBank& bank, const ExpertChoices& choices, const std::byte* in,
                       int rows, DType dtype, std::byte* work, float* out) = 0;

  /// x[r, :] += sigmoid(gates[r]) * delta[r, :]. x, delta: [rows, width] fp32; gates: [rows]; null:
  /// x += delta.
  virtual void add_gated(float* x, const float* delta, const float* gates, int rows, int width) = 0;

  /// out[r, first_column + i] = in[r, i], rounded to `dtype`. in: [rows, width] fp32; out: [rows,
  /// out_width] of dtype. Other columns stay.
  virtual void store_columns(const float* in, int rows, int width, DType dtype, std::byte* out,
                             int out_width, int first_column) = 0;

  /// out[r, columns[i]] = in[r, i]. in: [rows, width] fp32; columns: [width] distinct, below
  /// out_width; out: [rows, out_width] fp32. Other columns stay.
  virtual void scatter_columns(const float* in, int rows, int width, const std::int32_t* columns,
                               float* out, int out_width) = 0;

  /// Gathers the logit rows: out[i, :] = in[row of logit row i, :]. `bytes`: size of one row.
  virtual void gather_rows(const std::byte* in, std::size_t bytes, std::byte* out) = 0;
};

/// A change of a token's logit before masks, filters and temperature.
struct LogitEdit {
  TokenId token = 0;
  float bias = 0;
  float repetition = 1;  ///< > 0
  float frequency = 0;
  float presence = 0;
};

/// The changed logit, computed in fp32 in four steps: add the bias; multiply by `repetition` if
/// negative, else divide by it; subtract `frequency`; subtract `presence`.
[[nodiscard]] constexpr float edited(const LogitEdit& edit, float logit) {
  float x = logit + edit.bias;
  x = x < 0 ? x * edit.repetition : x / edit.repetition;
  x -= edit.frequency;
  return x - edit.presence;
}

/// One row to sample.
struct SampleRow {
  NoiseKey noise;
  std::int32_t step = 0;  ///< index of the token within the response: the noise counter's t
  float temperature = 1.0F;
  std::int32_t top_k = 0;
  float top_p = 1.0F;
  float min_p = 0.0F;
  /// Tokens that cannot be sampled, ascending, each once; tokens past the vocabulary are ignored.
  std::span<const TokenId> banned;
  /// Token whose log-probabilities are wanted, without sampling; below the vocabulary. -1: sample.
  TokenId given = -1;
  /// Edits by ascending token, at most one for each; tokens past the vocabulary are ignored.
  std::span<const LogitEdit> edits = {};
};

/// The token of a row and its log-probabilities. `logprob`: over the full vocabulary at the
/// sampling temperature (at temperature 1 when this is 0), from the unedited logits.
/// `sampling_logprob`: under the distribution that is sampled, after edits, bans and filters (0 at
/// temperature 0); -infinity where a given token cannot be sampled. A given token's bits are as if
/// it had been sampled.
struct Sampled {
  TokenId token = 0;
  float logprob = 0;
  float sampling_logprob = 0;
  std::int32_t kept = 0;  ///< number of tokens that could be sampled; set if sample() gets `kept`
};

/// A token and its score, logit / T + noise (its logit where T = 0); sample() takes the largest
/// score.
struct Ranked {
  TokenId token = -1;
  float score = 0;
};
/// Most tokens that rank() gives for a row.
inline constexpr int kMaxRanked = 32;

struct BackendInfo {
  std::string name;  ///< "cpu", "cuda"
  /// cpu: chosen at run time, "amx_bf16", "avx512_bf16", "avx512", "avx2" or "portable"; cuda: the
  /// device's, "sm_90".
  std::string isa;
  int threads = 1;
};

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual BackendInfo info() const = 0;

  [[nodiscard]] virtual std::unique_ptr<Buffer> allocate(std::size_t bytes) = 0;
  /// Memory of `bytes` bytes that can grow to `most` (>= bytes).
  [[nodiscard]] virtual std::unique_ptr<ElasticBuffer> reserve(std::size_t bytes,
                                                               std::size_t most) = 0;
  /// write() copies into memory of the backend, read() out of it.
  virtual void write(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void read(const std::byte* from, std::span<std::byte> to) = 0;

  /// Packs the slices, stacked along rows, into one matrix; all must have equal `columns`. `bias`:
  /// empty or [n] fp32, in host memory. `segments`: K is cut into so many equal ranges, whose sums
  /// are added in the binary tree; 1 or kAnySegments for column-parallel projections. If there are
  /// several, their width must be even. `compute`: dtype of the packed weight and of its inputs.
  /// Throws UnusableWeight for the first unusable weight; where another process packs
  /// (PackPlace::packs), that process throws.
  [[nodiscard]] virtual std::unique_ptr<Linear> pack(std::span<const MatrixSlice> slices,
                                                     std::span<const float> bias, int segments,
                                                     DType compute,
                                                     const PackPlace& place = {}) = 0;
  /// Packs the gates of an MLP and then as many ups, column-parallel, only for use by
  /// linear_swiglu().
  [[nodiscard]] virtual std::unique_ptr<Linear> pack_gate_up(std::span<const MatrixSlice> slices,
                                                             std::span<const float> bias,
                                                             DType compute,
                                                             const PackPlace& place = {}) {
    return pack(slices, bias, 1, compute, place);
  }
  /// Whether linear_swiglu() uses `work` where pack_gate_up() has packed the weight.
  [[nodiscard]] virtual bool gates_in_work() const { return true; }
  /// Bytes of `work` for a row of Operations::experts(), a multiple of 64.
  [[nodiscard]] virtual std::size_t expert_row_bytes(int hidden, int width, int chosen,
                                                     DType compute) const = 0;
  /// Bytes of the place of a packed [n, k]. 0: the backend keeps weights only in its own memory,
  /// which processes do not share.
  [[nodiscard]] virtual std::size_t packed_bytes(std::int64_t n, std::int64_t k,
                                                 DType compute) const = 0;
  /// Bytes of the place of an expert's packed [n, k] in its bank's memory, a multiple of 64.
  /// `gated`: packed by pack_gate_up().
  [[nodiscard]] virtual std::size_t expert_bytes(std::int64_t n, std::int64_t k, DType compute,
                                                 bool gated) const = 0;
  /// Makes an embedding. `rows`: rows of a stored table [vocab, hidden], with all columns; row i of
  /// the table is token i's. A backend that computes in host memory reads from the mapped file; the
  /// file and the table must then outlive the embedding. Other backends copy. `head`: where
  /// embeddings are tied, the same rows packed by pack() in one segment; else null. A backend that
  /// copies reads the head instead if packing kept every bit; the head must then outlive the
  /// embedding.
  [[nodiscard]] virtual std::unique_ptr<Embedding> embedding(const MatrixSlice& rows,
                                                             const Linear* head = nullptr) = 0;
  /// Whether each rank of a group should have only a part of the embeddings, because this backend
  /// copies them.
  [[nodiscard]] virtual bool splits_embeddings() const { return false; }

  /// The rows of a pass, padding included, for a batch of `rows`; never fewer than for a smaller
  /// batch. Buffers need room for these rows.
  [[nodiscard]] virtual PassRows padded(PassRows rows) const = 0;
  /// Sets the batch of the next pass; each pass needs its own begin(). Only one pass may be under
  /// way, over all owners. Memory that `batch` points to must stay unchanged until run() returns.
  /// Throws Error (internal) on tokens or positions out of range, and on a tree with a row before
  /// its parent.
  virtual void begin(const Batch& batch) = 0;
  [[nodiscard]] virtual std::unique_ptr<Recording> make_recording(const PassTraits& traits) = 0;
  /// Runs the pass: calls `compute` with the operations on all its rows, or, where
  /// PassTraits::recordable, replays an earlier pass of this recording with as many rows. So the
  /// operations that `compute` calls may depend on Operations::rows() only; apart from this, only
  /// the batch and the contents of the backend's memory may differ between passes. Where
  /// PassTraits::rows_apart, several threads may call `compute` at once, for parts that make up the
  /// pass.
  virtual void run(Recording& recording, const std::function<void(Operations&)>& compute) = 0;
  /// Seconds from begin() to the end of run(), for the last pass. Waits for the pass to end.
  [[nodiscard]] virtual double pass_seconds() = 0;
  /// Seconds from begin() to the end of the last sample() or rank() after it; for a device its busy
  /// time, without the host's part of a step.
  [[nodiscard]] virtual double busy_seconds() = 0;

  /// Copies whole KV blocks within the pool (copy on write).
  struct BlockCopy {
    std::int32_t from, to;
  };
  virtual void copy_blocks(const KvShape& kv, std::byte* cache,
                           std::span<const BlockCopy> copies) = 0;

  /// Copies k, v and experts of single positions, in all layers. Moves are made in order: a later
  /// one may read the result of an earlier one.
  struct SlotMove {
    std::int32_t from_block, from_slot;  ///< slot: position within the block
    std::int32_t to_block, to_slot;
  };
  virtual void move_slots(const KvShape& kv, std::byte* cache, std::span<const SlotMove> moves) = 0;

  /// Samples each row by the shared noise: argmax over the kept tokens of logit / T + Gumbel noise.
  /// A row with a given token gets this token's log-probabilities instead. logits: [rows.size(),
  /// stride] fp32, of which the first `vocab` columns count. Throws UnusableLogits, as rank() does.
  /// `kept`: empty, or [rows.size(), n] for the ids of the tokens that each row can sample,
  /// ascending (at temperature 0 only the sampled token); Sampled::kept is their number. With
  /// `kept`, all rows must have top_k from 1 to n, and no given token.
  virtual void sample(const float* logits, std::size_t stride, int vocab,
                      std::span<const SampleRow> rows, std::span<Sampled> out,
                      std::span<TokenId> kept = {}) = 0;

  /// The `count` (1 to kMaxRanked) best kept tokens of each row, best first, lowest id first on
  /// ties; the first is the one that sample() takes. Rows with fewer kept tokens are filled with
  /// token -1, score -infinity. out: [rows.size(), count].
  virtual void rank(const float* logits, std::size_t stride, int vocab,
                    std::span<const SampleRow> rows, int count, std::span<Ranked> out) = 0;

  /// The `count` (1 to kMaxRanked) tokens of each row that are most probable at temperature 1, by
  /// the unedited logits. Scores are their log-probabilities over the full vocabulary, with the
  /// bits of Sampled::logprob at temperature 1. Otherwise as rank(). out: [rows, count].
  virtual void top(const float* logits, std::size_t stride, int vocab, int rows, int count,
                   std::span<Ranked> out) = 0;
};

/// Throws UnusableWeight where the slice has an unusable weight. For weights that are read in
/// place, not packed.
void require_usable(const MatrixSlice& slice, DType compute);

/// A copy of host values in memory of the backend.
template <class T>
[[nodiscard]] std::unique_ptr<Buffer> upload(Backend& backend, const std::vector<T>& values) {
  auto buffer = backend.allocate(values.size() * sizeof(T));
  backend.write(buffer->data(), std::as_bytes(std::span(values)));
  return buffer;
}

/// Makes the CPU backend. `threads`: threads of this rank, the caller included (>= 1). `isa`:
/// "auto" or one of supported_cpu_isas(). Throws UsageError, which names the choices, where the
/// machine does not have it.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(int threads,
                                                        const std::string& isa = "auto");
/// Names of the instruction sets that this machine supports, best first.
[[nodiscard]] std::vector<std::string> supported_cpu_isas();

}  // namespace paceline::kernels
