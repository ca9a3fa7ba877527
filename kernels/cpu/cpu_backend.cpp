// The CPU backend: shares the work of a pass among its threads, and calls the functions of the
// chosen instruction set.
//
// Threads share each operation, or each takes some of the rows through all of them. The first reads
// weights once, and hands operations and what they give from core to core, which takes some
// microseconds each time. The second does not, but reads the weights as often as there are threads:
// for models that a core's own cache holds.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "kernels/backend.hpp"
#include "kernels/cpu/bf16.hpp"
#include "kernels/cpu/cpu_sampler.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/packed_linear.hpp"
#include "kernels/cpu/pass_parts.hpp"
#include "kernels/limits.hpp"
#include "kernels/row_plan.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/thread_pool.hpp"

namespace paceline::kernels {
namespace {

using namespace cpu;

/// Elements below which an elementwise operation is not worth waking the threads for.
constexpr std::int64_t kParallelElements = 16384;
/// Row heads (rows times query heads of a kv head) that attention works on together, where the
/// group itself is not larger: K and V tiles are reused from the caches that many times.
constexpr int kRowHeads = 64;
/// Packed input that stays in the second-level cache while weight panels pass by.
constexpr std::size_t kInputBytes = std::size_t{1} << 20;
/// Weights up to which threads take rows apart: what second-level caches hold.
constexpr std::size_t kApartBytes = std::size_t{2} << 20;

class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(std::size_t bytes) : memory_(bytes) {}
  [[nodiscard]] std::byte* data() override { return memory_.data(); }
  [[nodiscard]] std::size_t size() const override { return memory_.size(); }

 private:
  Memory memory_;
};

void expect(bool condition, const char* what) {
  if (!condition) throw Error(ExitCode::internal, std::string("cpu backend: ") + what);
}

/// The table as it is mapped.
class MappedEmbedding final : public Embedding {
 public:
  explicit MappedEmbedding(const TensorView& table) : view(table) {}
  const TensorView& view;  ///< [vocab, hidden]
};

/// A block of rows of a chain, for one kv head.
struct AttentionUnit {
  int chain, first, head;
};

class CpuRecording final : public Recording {
 public:
  explicit CpuRecording(const PassTraits& t) : traits(t) {}
  const PassTraits traits;
};

/// Memory that one thread, or one part of a pass, works with.
struct Workspace {
  Memory packed_input;               ///< [rows][k] as the kernels want it
  Memory products;                   ///< [rows][gate | up] of some columns
  Memory scratch;                    ///< of attention
  std::vector<AttentionUnit> units;  ///< of attention
};

/// Rows of an operation.
struct Rows {
  int first, count;
};
/// [first, last)
struct Span {
  int first, last;
};

int panels_of(int columns) { return (columns + kPanelWidth - 1) / kPanelWidth; }

/// A part of a pass on its way through the operations.
struct OwnPart {
  const PassPart* part;
  Workspace* workspace;
  Rows rows;  ///< of the batch, then those gathered
};
/// What the operations of this thread are about; null: all rows.
thread_local OwnPart* own_part = nullptr;

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, const KernelTable& kernels)
      : pool_(threads),
        kernels_(kernels),
        sampler_(kernels, pool_),
        workspaces_(static_cast<std::size_t>(threads)) {}

  [[nodiscard]] BackendInfo info() const override { return {"cpu", kernels_.isa, pool_.size()}; }

  [[nodiscard]] std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
    return std::make_unique<HostBuffer>(bytes);
  }
  void write(std::byte* to, std::span<const std::byte> from) override {
    std::copy(from.begin(), from.end(), to);
  }
  void read(const std::byte* from, std::span<std::byte> to) override {
    std::copy_n(from, to.size(), to.begin());
  }

  [[nodiscard]] std::unique_ptr<Linear> pack(std::span<const MatrixSlice> slices,
                                             std::span<const float> bias, int segments,
                                             DType compute) override {
    return std::make_unique<PackedLinear>(slices, bias, segments, compute, pool_);
  }

  [[nodiscard]] std::unique_ptr<Embedding> embedding(const TensorView& table) override;

  [[nodiscard]] PassRows padded(PassRows most) const override { return most; }
  PassRows begin(const Batch& batch) override;
  [[nodiscard]] std::unique_ptr<Recording> make_recording(const PassTraits& traits) override {
    return std::make_unique<CpuRecording>(traits);
  }
  void run(Recording& recording, const std::function<void()>& operations) override;
  [[nodiscard]] double pass_seconds() override {
    return std::chrono::duration<double>(end_ - begin_).count();
  }
  [[nodiscard]] double busy_seconds() override {
    return std::chrono::duration<double>(sampled_ - begin_).count();
  }

  void embed(const Embedding& table, float* out) override;
  void add_rmsnorm(float* x, const float* delta, const float* weight, float epsilon, int rows,
                   int width, DType dtype, std::byte* out) override;
  void add_bias(float* x, const float* bias, int rows, int width) override;
  void linear(const Linear& weight, const std::byte* in, int rows, float* out) override;
  void linear_swiglu(const Linear& gate_up, const std::byte* in, int rows, float* work, DType dtype,
                     std::byte* out) override;
  void rope_and_store(const QkvParams& params, const RopeTable& rope, int layer, const float* qkv,
                      std::byte* q_out) override;
  void attention(const QkvParams& params, int layer, const std::byte* q, std::byte* out) override;
  void swiglu(const float* gate_up, int rows, int width, DType dtype, std::byte* out) override;
  void gather_rows(const std::byte* in, std::size_t bytes, std::byte* out) override;
  void copy_blocks(const KvShape& kv, std::byte* cache, std::span<const BlockCopy> copies) override;
  void move_slots(const KvShape& kv, std::byte* cache, std::span<const SlotMove> moves) override;
  void sample(const float* logits, std::size_t stride, int vocab, std::span<const SampleRow> rows,
              std::span<Sampled> out) override {
    sampler_.sample(logits, stride, vocab, rows, out);
    sampled_ = std::chrono::steady_clock::now();
  }
  void rank(const float* logits, std::size_t stride, int vocab, std::span<const SampleRow> rows,
            int count, std::span<Ranked> out) override {
    sampler_.rank(logits, stride, vocab, rows, count, out);
    sampled_ = std::chrono::steady_clock::now();
  }

 private:
  /// f(unit) for units 0 .. count - 1, on the threads when `elements` of work warrant it.
  template <class F>
  void for_each(int count, std::int64_t elements, F&& f) {
    if (elements < kParallelElements || own_part != nullptr) {
      for (int i = 0; i < count; ++i) f(i);
    } else {
      pool_.for_units(count, [&f](int, int unit) { f(unit); });
    }
  }
  /// A matrix product with its input packed. Row blocks go in passes whose input stays in the cache
  /// while all the panels go by.
  struct Product {
    const ProductKernels& kernels;
    LinearArgs args{};  ///< all but the output
    int passes = 1, blocks_of_pass = 1;
    int together = 1;  ///< panels
  };
  [[nodiscard]] Product prepare(const Linear& weight, const std::byte* in, Rows rows);
  /// f(workspace, panels, row blocks) for all of `panels` panels, each pass, on the threads.
  template <class F>
  void for_panels(const Product& product, int panels, F&& f);

  /// The rows of an operation that are this thread's to see to.
  [[nodiscard]] static Rows mine(int rows) {
    return own_part != nullptr ? own_part->rows : Rows{0, rows};
  }
  [[nodiscard]] Workspace& workspace() {
    return own_part != nullptr ? *own_part->workspace : workspaces_[0];
  }

  ThreadPool pool_;
  const KernelTable& kernels_;
  Sampler sampler_;
  std::vector<Workspace> workspaces_;  ///< [threads]
  Batch batch_;
  RowPlan plan_;                 ///< of batch_
  std::vector<PassPart> parts_;  ///< of batch_; empty: threads share each operation
  std::chrono::steady_clock::time_point begin_, end_, sampled_;  ///< of the pass
};

std::unique_ptr<Embedding> CpuBackend::embedding(const TensorView& table) {
  expect(table.shape.size() == 2, "embedding table is not a matrix");
  return std::make_unique<MappedEmbedding>(table);
}

PassRows CpuBackend::begin(const Batch& batch) {
  begin_ = std::chrono::steady_clock::now();
  batch_ = batch;
  plan_.set(batch);
  return {static_cast<int>(batch.tokens.size()), static_cast<int>(batch.logit_rows.size())};
}

void CpuBackend::run(Recording& recording, const std::function<void()>& operations) {
  const PassTraits& traits = dynamic_cast<const CpuRecording&>(recording).traits;
  parts_.clear();
  if (traits.rows_apart && traits.weight_bytes <= kApartBytes) {
    cut_pass(batch_, plan_, pool_.size(), parts_);
  }
  if (parts_.empty()) {
    operations();
  } else {
    std::vector<std::exception_ptr> errors(parts_.size());
    pool_.for_units(static_cast<int>(parts_.size()), [&](int, int i) {
      OwnPart own{&parts_[i], &workspaces_[i], {parts_[i].first_row, parts_[i].rows}};
      own_part = &own;
      try {
        operations();
      } catch (...) {
        errors[i] = std::current_exception();
      }
      own_part = nullptr;
    });
    for (const std::exception_ptr& error : errors) {
      if (error != nullptr) std::rethrow_exception(error);
    }
  }
  end_ = std::chrono::steady_clock::now();
}

void CpuBackend::embed(const Embedding& embedding, float* out) {
  const TensorView& table = dynamic_cast<const MappedEmbedding&>(embedding).view;
  expect(batch_.vocab <= table.shape[0], "token outside the embedding table");
  const std::int64_t width = table.shape[1];
  const Rows mine = this->mine(static_cast<int>(batch_.tokens.size()));
  for (int r = mine.first; r < mine.first + mine.count; ++r) {
    const std::byte* row = table.bytes.data() + batch_.tokens[r] * width * size_of(table.dtype);
    float* to = out + r * width;
    if (table.dtype == DType::f32) {
      std::memcpy(to, row, static_cast<std::size_t>(width) * 4);
      continue;
    }
    for (std::int64_t i = 0; i < width; ++i) {
      std::uint16_t x;
      std::memcpy(&x, row + i * 2, 2);
      to[i] = bf16_to_float(x);
    }
  }
}

void CpuBackend::add_rmsnorm(float* x, const float* delta, const float* weight, float epsilon,
                             int rows, int width, DType dtype, std::byte* out) {
  const NormArgs args = {x, delta, weight, out, epsilon, width, dtype == DType::bf16};
  const Rows mine = this->mine(rows);
  for_each(mine.count, static_cast<std::int64_t>(rows) * width, [&](int i) {
    const int r = mine.first + i;
    kernels_.add_rmsnorm(args, r, r + 1);
  });
}

void CpuBackend::add_bias(float* x, const float* bias, int rows, int width) {
  const Rows mine = this->mine(rows);
  for_each(mine.count, static_cast<std::int64_t>(rows) * width, [&](int i) {
    float* row = x + static_cast<std::size_t>(mine.first + i) * width;
    for (int column = 0; column < width; ++column) row[column] += bias[column];
  });
}

void CpuBackend::swiglu(const float* gate_up, int rows, int width, DType dtype, std::byte* out) {
  constexpr int kPiece = 2048;  // of a row: a unit of work
  const int pieces = (width + kPiece - 1) / kPiece;
  const Rows mine = this->mine(rows);
  for_each(mine.count * pieces, static_cast<std::int64_t>(rows) * width, [&](int unit) {
    const int first = unit % pieces * kPiece;
    const std::size_t row = mine.first + unit / pieces;
    const float* gate = gate_up + row * 2 * width + first;
    kernels_.swiglu({gate, gate + width, out + (row * width + first) * size_of(dtype), 0, 0, 1,
                     std::min(width - first, kPiece), dtype == DType::bf16});
  });
}

CpuBackend::Product CpuBackend::prepare(const Linear& weight, const std::byte* in, Rows rows) {
  const auto& packed = dynamic_cast<const PackedLinear&>(weight);
  Product product{packed.dtype() == DType::bf16 ? kernels_.bf16 : kernels_.f32};
  LinearArgs& args = product.args;
  args.weight = packed.data();
  args.n = packed.n();
  args.k = packed.depth();
  args.in_width = packed.k();
  args.segments = packed.segments();
  args.bias = packed.bias();
  args.in = in + static_cast<std::size_t>(rows.first) * args.in_width * size_of(packed.dtype());
  args.rows = rows.count;
  const int most_rows = product.kernels.max_rows;
  args.row_blocks = (args.rows + most_rows - 1) / most_rows;
  const std::size_t block_bytes =
      product.kernels.packed_row_bytes(args.k, args.segments) * most_rows;
  Memory& packed_input = workspace().packed_input;
  packed_input.reserve(block_bytes * args.row_blocks);
  args.packed = packed_input.data();
  for_each(args.row_blocks, static_cast<std::int64_t>(args.rows) * args.k,
           [&](int block) { product.kernels.pack_rows(args, block, block + 1); });

  const int most_blocks =
      std::clamp<int>(static_cast<int>(kInputBytes / block_bytes), 1, args.row_blocks);
  product.passes = (args.row_blocks + most_blocks - 1) / most_blocks;
  product.blocks_of_pass = (args.row_blocks + product.passes - 1) / product.passes;
  product.together = args.row_blocks == 1 ? product.kernels.panels_together(args.rows) : 1;
  return product;
}

template <class F>
void CpuBackend::for_panels(const Product& product, int panels, F&& f) {
  const int together = product.together;
  const auto run = [&](Workspace& space, int unit, int pass) {
    const int first_block = pass * product.blocks_of_pass;
    f(space, Span{unit * together, std::min(panels, (unit + 1) * together)},
      Span{first_block, std::min(product.args.row_blocks, first_block + product.blocks_of_pass)});
  };
  const int units = (panels + together - 1) / together;
  if (own_part == nullptr) {
    pool_.for_passes(units, product.passes,
                     [&](int thread, int unit, int pass) { run(workspaces_[thread], unit, pass); });
    return;
  }
  for (int pass = 0; pass < product.passes; ++pass) {
    for (int unit = 0; unit < units; ++unit) run(workspace(), unit, pass);
  }
}

void CpuBackend::linear(const Linear& weight, const std::byte* in, int rows, float* out) {
  const Rows mine = this->mine(rows);
  if (mine.count == 0) return;
  Product product = prepare(weight, in, mine);
  LinearArgs& args = product.args;
  args.out = out + static_cast<std::size_t>(mine.first) * args.n;
  args.out_stride = args.n;
  args.first_column = 0;
  for_panels(product, panels_of(args.n), [&](Workspace&, Span panels, Span blocks) {
    product.kernels.linear(args, panels.first, panels.last, blocks.first, blocks.last);
  });
}

// Each thread multiplies the same panels of gate and of up and writes what they come to: the
// products, four times as large as that, stay in its caches.
void CpuBackend::linear_swiglu(const Linear& gate_up, const std::byte* in, int rows, float* work,
                               DType dtype, std::byte* out) {
  const int width = gate_up.n() / 2;
  if (width % kPanelWidth != 0) {
    Backend::linear_swiglu(gate_up, in, rows, work, dtype, out);
    return;
  }
  const Rows mine = this->mine(rows);
  if (mine.count == 0) return;
  const Product product = prepare(gate_up, in, mine);
  const int most_columns = product.together * kPanelWidth;
  const int half = panels_of(width);
  const std::size_t bytes = sizeof(float) * mine.count * 2 * most_columns;
  if (own_part != nullptr) {
    workspace().products.reserve(bytes);
  } else {
    for (Workspace& space : workspaces_) space.products.reserve(bytes);
  }
  for_panels(product, half, [&](Workspace& space, Span panels, Span blocks) {
    auto* products = reinterpret_cast<float*>(space.products.data());
    LinearArgs args = product.args;
    args.out_stride = 2 * most_columns;
    for (const int up : {0, 1}) {
      args.out = products + up * most_columns;
      args.first_column = (up * half + panels.first) * kPanelWidth;
      product.kernels.linear(args, up * half + panels.first, up * half + panels.last, blocks.first,
                             blocks.last);
    }
    const int first = product.kernels.first_row(args, blocks.first);
    const std::size_t row = mine.first + first;
    const float* gate = products + first * args.out_stride;
    kernels_.swiglu({gate, gate + most_columns,
                     out + (row * width + static_cast<std::size_t>(panels.first) * kPanelWidth) *
                               size_of(dtype),
                     args.out_stride, width, product.kernels.first_row(args, blocks.last) - first,
                     (panels.last - panels.first) * kPanelWidth, dtype == DType::bf16});
  });
}

void CpuBackend::rope_and_store(const QkvParams& params, const RopeTable& rope, int layer,
                                const float* qkv, std::byte* q_out) {
  const KvShape& kv = batch_.kv;
  expect(
      params.head_dim % kHeadDimStep == 0 && params.head_dim <= kMaxHeadDim && kv.block % 16 == 0,
      "head or KV block of an unsupported size");
  expect(batch_.positions <= rope.max_position, "position outside the rotary table");
  const RopeArgs args = {params.heads,  params.kv_heads,         params.head_dim,
                         kv.block,      kv.dtype == DType::bf16, params.q_norm,
                         params.k_norm, params.norm_epsilon};
  const std::size_t qkv_width =
      static_cast<std::size_t>(params.heads + 2 * params.kv_heads) * params.head_dim;
  const std::size_t q_bytes =
      static_cast<std::size_t>(params.heads) * params.head_dim * size_of(kv.dtype);
  const Rows mine = this->mine(static_cast<int>(plan_.rows().size()));
  for_each(mine.count, mine.count * static_cast<std::int64_t>(qkv_width), [&](int i) {
    const int r = mine.first + i;
    const RowPlace& place = plan_.rows()[r];
    RopeRow row;
    row.qkv = qkv + r * qkv_width;
    row.cos_sin = rope.cos_sin + static_cast<std::size_t>(place.position) * params.head_dim;
    row.q_out = q_out + r * q_bytes;
    row.layer = batch_.cache + place.block * kv.block_bytes() + layer * kv.layer_bytes();
    row.slot = place.slot;
    kernels_.rope_and_store(args, row);
  });
}

void CpuBackend::attention(const QkvParams& params, int layer, const std::byte* q, std::byte* out) {
  const KvShape& kv = batch_.kv;
  const int group = params.heads / params.kv_heads;
  expect(group * params.kv_heads == params.heads, "heads are not a multiple of kv heads");
  const int rows_together = std::max(1, kRowHeads / group);
  const std::size_t head_bytes =
      static_cast<std::size_t>(params.head_dim) * kv.block * size_of(kv.dtype);
  const std::size_t stride = static_cast<std::size_t>(params.heads) * params.head_dim;

  const std::span<const Chain> chains =
      own_part == nullptr
          ? plan_.chains()
          : plan_.chains().subspan(own_part->part->first_chain, own_part->part->chains);
  std::vector<AttentionUnit>& units = workspace().units;
  units.clear();
  std::int64_t work = 0;
  int longest_path = 0;
  for (int c = 0; c < static_cast<int>(chains.size()); ++c) {
    const Chain& chain = chains[c];
    const int positions = chain.first_position + chain.rows;
    work += static_cast<std::int64_t>(chain.rows) * positions * static_cast<std::int64_t>(stride);
    if (chain.path != nullptr) longest_path = std::max(longest_path, positions - chain.base);
    for (int head = 0; head < params.kv_heads; ++head) {
      for (int first = 0; first < chain.rows; first += rows_together) {
        units.push_back({c, first, head});
      }
    }
  }
  const std::size_t scratch_bytes =
      attention_scratch_floats(rows_together * group, params.head_dim, longest_path) *
      sizeof(float);
  const auto attend = [&](Workspace& space, const AttentionUnit& unit) {
    const Chain& chain = chains[unit.chain];
    const std::size_t at = (chain.first_row + unit.first) * stride +
                           static_cast<std::size_t>(unit.head) * group * params.head_dim;
    AttentionArgs args;
    args.cache = batch_.cache + layer * kv.layer_bytes() + unit.head * head_bytes;
    args.values = params.kv_heads * head_bytes;
    args.block_bytes = kv.block_bytes();
    args.blocks = chain.blocks;
    args.block = kv.block;
    args.head_dim = params.head_dim;
    args.group = group;
    args.bf16 = kv.dtype == DType::bf16;
    args.q = q + at * size_of(kv.dtype);
    args.out = out + at * size_of(kv.dtype);
    args.stride = stride;
    args.rows = std::min(rows_together, chain.rows - unit.first);
    args.first_position = chain.first_position + unit.first;
    args.path = chain.path;
    args.path_base = chain.base;
    args.scratch = reinterpret_cast<float*>(space.scratch.data());
    kernels_.attention(args);
  };
  if (units.size() == 1 || work < 8 * kParallelElements || own_part != nullptr) {
    workspace().scratch.reserve(scratch_bytes);
    for (const AttentionUnit& unit : units) attend(workspace(), unit);
    return;
  }
  for (Workspace& space : workspaces_) space.scratch.reserve(scratch_bytes);
  pool_.for_units(static_cast<int>(units.size()),
                  [&](int thread, int i) { attend(workspaces_[thread], units[i]); });
}

void CpuBackend::gather_rows(const std::byte* in, std::size_t bytes, std::byte* out) {
  if (own_part != nullptr) {
    own_part->rows = {own_part->part->first_logit_row, own_part->part->logit_rows};
  }
  const Rows mine = this->mine(static_cast<int>(batch_.logit_rows.size()));
  for (int i = mine.first; i < mine.first + mine.count; ++i) {
    std::memcpy(out + i * bytes, in + batch_.logit_rows[i] * bytes, bytes);
  }
}

void CpuBackend::copy_blocks(const KvShape& kv, std::byte* cache,
                             std::span<const BlockCopy> copies) {
  const std::size_t bytes = kv.block_bytes();
  for_each(static_cast<int>(copies.size()), static_cast<std::int64_t>(copies.size() * bytes),
           [&](int i) {
             std::memcpy(cache + copies[i].to * bytes, cache + copies[i].from * bytes, bytes);
           });
}

void CpuBackend::move_slots(const KvShape& kv, std::byte* cache, std::span<const SlotMove> moves) {
  const std::size_t head_bytes =
      static_cast<std::size_t>(kv.head_dim) * kv.block * size_of(kv.dtype);
  const std::size_t values = kv.kv_heads * head_bytes;
  const auto elements =
      static_cast<std::int64_t>(moves.size()) * kv.layers * kv.kv_heads * kv.head_dim * 2;
  for_each(kv.layers * kv.kv_heads, elements, [&](int unit) {
    std::byte* base =
        cache + unit / kv.kv_heads * kv.layer_bytes() + unit % kv.kv_heads * head_bytes;
    for (const SlotMove& move : moves) {
      std::byte* from = base + move.from_block * kv.block_bytes();
      std::byte* to = base + move.to_block * kv.block_bytes();
      kernels_.copy_slot({from, from + values, to, to + values, kv.block, kv.block, move.from_slot,
                          move.to_slot, kv.head_dim, kv.dtype == DType::bf16});
    }
  });
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads, const std::string& isa) {
  if (threads < 1)
    throw UsageError("threads: " + std::to_string(threads) + ", expected at least 1");
  return std::make_unique<CpuBackend>(threads, cpu::kernel_table(isa.c_str()));
}

}  // namespace paceline::kernels
