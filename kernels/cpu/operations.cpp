#include "kernels/cpu/operations.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "kernels/cpu/bf16.hpp"
#include "kernels/cpu/for_each.hpp"
#include "kernels/cpu/packed_linear.hpp"
#include "kernels/limits.hpp"
#include "kernels/source_rows.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/stored_floats.hpp"

namespace paceline::kernels::cpu {
namespace {

void expect(bool condition, const char* what) {
  if (!condition) throw Error(ExitCode::internal, std::string("cpu backend: ") + what);
}

}  // namespace

MappedEmbedding::MappedEmbedding(const MatrixSlice& slice) : rows(slice) {
  require_whole_rows(slice);
}

void CpuOperations::set(const Batch& batch, const RowPlan& plan, const PassRows& rows) {
  batch_ = &batch;
  rows_ = rows;
  tokens_ = batch.tokens.subspan(rows.first_row, rows.rows);
  logit_rows_ = batch.logit_rows.subspan(rows.first_logit_row, rows.logit_rows);
  // A pass with Batch::attended is never cut into parts.
  attended_ = {.rows = rows.rows, .first_row = rows.first_row};
  if (batch.attended)
    attended_ = {.rows = batch.attended->rows, .first_row = batch.attended->first};
  places_ = batch.attended ? plan.rows() : plan.rows().subspan(rows.first_row, rows.rows);
  const auto first_from = [&plan](int row) {
    return std::ranges::lower_bound(plan.chains(), row, {}, &Chain::first_row);
  };
  chains_ = {first_from(attended_.first_row), first_from(attended_.first_row + attended_.rows)};
  attention_units_.set(chains_, batch.kv, batch.heads, pool_.size());
}

void CpuOperations::embed(const Embedding& embedding, float* out) {
  const MatrixSlice& slice = dynamic_cast<const MappedEmbedding&>(embedding).rows;
  const TensorView& table = *slice.matrix;
  expect(batch_->vocab <= table.shape[0], "token outside the embedding table");
  const std::int64_t width = slice.columns;
  const std::span<const float* const> given = of_rows(batch_->pictures.embeddings);
  for (int r = 0; r < rows_.rows; ++r) {
    float* to = out + r * width;
    if (!given.empty() && given[r] != nullptr) {
      std::copy_n(given[r], width, to);
      continue;
    }
    if (tokens_[r] < slice.first_row || tokens_[r] >= slice.first_row + slice.rows) {
      std::fill_n(to, width, -0.0F);
      continue;
    }
    to_floats(source_row(slice, tokens_[r] - slice.first_row), width, to);
  }
}

void CpuOperations::add_rmsnorm(float* x, const float* delta, const float* weight, float epsilon,
                                int rows, int width, DType dtype, std::byte* out) {
  const NormArgs args = {x, delta, weight, nullptr, out, epsilon, width, dtype == DType::bf16};
  for_each(pool_, rows, static_cast<std::int64_t>(rows) * width,
           [&](int r) { kernels_.add_rmsnorm(args, r, r + 1); });
}

void CpuOperations::add_bias(float* x, const float* bias, int rows, int width) {
  for_each(pool_, rows, static_cast<std::int64_t>(rows) * width, [&](int r) {
    float* row = x + static_cast<std::size_t>(r) * width;
    for (int column = 0; column < width; ++column) row[column] += bias[column];
  });
}

void CpuOperations::swiglu(const float* gate_up, int rows, int width, DType dtype, std::byte* out) {
  constexpr int kPiece = 2048;  // elements of a row in a unit of work
  const int pieces = (width + kPiece - 1) / kPiece;
  for_each(pool_, rows * pieces, static_cast<std::int64_t>(rows) * width, [&](int unit) {
    const int first = unit % pieces * kPiece;
    const std::size_t row = unit / pieces;
    const float* gate = gate_up + row * 2 * width + first;
    kernels_.swiglu({gate, gate + width, out + (row * width + first) * size_of(dtype), 0, 0, 1,
                     std::min(width - first, kPiece), dtype == DType::bf16});
  });
}

Product CpuOperations::prepare(const Linear& weight, const std::byte* in, int rows) {
  Product product(kernels_, weight, in, rows, pool_.size());
  if (product.packed_bytes() > 0) {
    Memory& packed = workspaces_[0].packed_input;
    packed.reserve(product.packed_bytes());
    product.set_packed(packed.data());
    for_each(pool_, product.row_blocks(), static_cast<std::int64_t>(rows) * product.k(),
             [&](int block) { product.pack(block); });
  }
  return product;
}

template <class F>
void CpuOperations::for_panels(const Product& product, int panels, F&& f) {
  // Units have the best number of panels or fewer, so that all threads have equally many units.
  const int most = pool_.size() * product.most_panels();
  const int units = std::min(panels, (panels + most - 1) / most * pool_.size());
  const auto first = [panels, units](int unit) {
    return static_cast<int>(static_cast<std::int64_t>(unit) * panels / units);
  };
  pool_.for_passes(units, product.passes(), [&](int thread, int unit, int pass) {
    f(workspaces_[thread], Span{first(unit), first(unit + 1)}, product.blocks(pass));
  });
}

void CpuOperations::linear(const Linear& weight, const std::byte* in, int rows, float* out) {
  if (rows == 0) return;
  const Product product = prepare(weight, in, rows);
  for (Workspace& space : workspaces_) product.reserve(space);
  for_panels(product, product.panels(), [&](Workspace& space, Span panels, Span blocks) {
    product.multiply(space, panels, blocks, out);
  });
}

void CpuOperations::linear_swiglu(const Linear& gate_up, const std::byte* in, int rows, float* work,
                                  DType dtype, std::byte* out) {
  if (rows == 0) return;
  if (gate_up.n() % (2 * kPanelWidth) != 0) {
    Operations::linear_swiglu(gate_up, in, rows, work, dtype, out);
    return;
  }
  const Product product = prepare(gate_up, in, rows);
  for (Workspace& space : workspaces_) product.reserve_gated(space);
  for_panels(product, product.gate_panels(), [&](Workspace& space, Span panels, Span blocks) {
    product.gate(space, panels, blocks, out);
  });
}

void CpuOperations::store_experts(const ExpertChoices& choices, int first) {
  const KvShape& kv = batch_->kv;
  if (kv.routed == 0) return;
  const int before = attended_.first_row - rows_.first_row;
  for (int r = 0; r < attended_.rows; ++r) {
    const RowPlace& place = places_[r];
    std::byte* const block = batch_->cache + place.block * kv.block_bytes() + kv.routing_offset();
    const std::int32_t* const ids = choices.ids + std::ptrdiff_t{before + r} * choices.chosen;
    std::copy(
        ids, ids + choices.chosen,
        reinterpret_cast<std::int16_t*>(block) + std::ptrdiff_t{place.slot} * kv.routed + first);
  }
}

void CpuOperations::add_gated(float* x, const float* delta, const float* gates, int rows,
                              int width) {
  for_each(pool_, rows, static_cast<std::int64_t>(rows) * width, [&](int r) {
    const std::ptrdiff_t at = std::ptrdiff_t{r} * width;
    if (gates == nullptr) {
      for (int i = 0; i < width; ++i) x[at + i] += delta[at + i];
      return;
    }
    kernels_.add_gated(x + at, delta + at, gates[r], width);
  });
}

namespace {

/// cos and sin for a position of three parts: a row of the table, if the parts are equal, else
/// composed in `composed`.
const float* compose(const RopeTable& rope, const RotaryPosition& at, float* composed) {
  const auto of = [&rope](std::int32_t position) {
    return rope.cos_sin + static_cast<std::size_t>(position) * rope.head_dim;
  };
  if (at.frame == at.row && at.frame == at.column) return of(at.frame);
  const int half = rope.head_dim / 2;
  int first = 0;
  for (int part = 0; part < 3; ++part) {
    const float* from = of(part == 0 ? at.frame : part == 1 ? at.row : at.column);
    const int pairs = rope.sections[part];
    std::copy_n(from + first, pairs, composed + first);
    std::copy_n(from + half + first, pairs, composed + half + first);
    first += pairs;
  }
  return composed;
}

}  // namespace

void CpuOperations::rope_and_store(const QkvParams& params, const RopeTable& rope, int layer,
                                   const float* qkv, std::byte* q_out) {
  const KvShape& kv = batch_->kv;
  expect(
      params.head_dim % kHeadDimStep == 0 && params.head_dim <= kMaxHeadDim && kv.block % 16 == 0,
      "head or KV block of an unsupported size");
  expect(batch_->positions <= rope.max_position, "position outside the rotary table");
  const std::span<const RotaryPosition> rotary = of_attended(batch_->pictures.rotary);
  expect(rotary.empty() ||
             2 * std::accumulate(rope.sections.begin(), rope.sections.end(), 0) == params.head_dim,
         "rotary positions of three parts, of a model without them");
  expect(params.head_dim <= kv.head_dim && kv.head_dim <= kMaxHeadDim &&
             kv.head_dim % kHeadDimStep == 0,
         "heads of another model");
  const RopeArgs args = {params.heads,  params.kv_heads, params.head_dim,
                         kv.head_dim,   kv.block,        kv.dtype == DType::bf16,
                         params.q_norm, params.k_norm,   params.norm_epsilon};
  const std::size_t qkv_width =
      static_cast<std::size_t>(params.heads + 2 * params.kv_heads) * params.head_dim;
  const std::size_t q_bytes =
      static_cast<std::size_t>(params.heads) * kv.head_dim * size_of(kv.dtype);
  for_each(
      pool_, attended_.rows, attended_.rows * static_cast<std::int64_t>(qkv_width), [&](int r) {
        const RowPlace& place = places_[r];
        RopeRow row;
        row.qkv = qkv + r * qkv_width;
        std::array<float, kMaxHeadDim> composed;
        row.cos_sin = rotary.empty() ? rope.cos_sin + static_cast<std::size_t>(place.position) *
                                                          params.head_dim
                                     : compose(rope, rotary[r], composed.data());
        row.q_out = q_out + r * q_bytes;
        row.layer = batch_->cache + place.block * kv.block_bytes() + layer * kv.layer_bytes();
        row.slot = place.slot;
        kernels_.rope_and_store(args, row);
      });
}

void CpuOperations::attention(const QkvParams& params, int layer, const std::byte* q,
                              std::byte* out) {
  const KvShape& kv = batch_->kv;
  const int group = params.heads / params.kv_heads;
  expect(group * params.kv_heads == params.heads, "heads are not a multiple of kv heads");
  expect(params.heads == batch_->heads && params.kv_heads == kv.kv_heads && !kv.latent(),
         "heads of another model");
  const auto head = static_cast<std::size_t>(params.head_dim);
  const auto stored = static_cast<std::size_t>(kv.head_dim);
  AttentionArgs sizes = {};
  sizes.head_dim = sizes.value_dim = kv.head_dim;
  sizes.out_dim = params.head_dim;
  sizes.scale = 1.0F / std::sqrt(static_cast<float>(params.head_dim));
  sizes.group = group;
  sizes.q = {params.heads * stored, stored};
  sizes.out = {params.heads * head, head};
  attend(sizes, layer, q, out);
}

void CpuOperations::latent_rope_and_store(const LatentParams& params, const RopeTable& rope,
                                          int layer, const float* q, const float* kv,
                                          std::byte* nope_out, std::byte* q_out) {
  const KvShape& shape = batch_->kv;
  expect(shape.latent() && shape.head_dim == params.width() && shape.block % 16 == 0 &&
             params.width() <= kMaxLatentDim && params.rank <= kMaxLatentValues,
         "latent vectors of an unsupported size");
  expect(batch_->positions <= rope.max_position, "position outside the rotary table");
  const std::size_t element = size_of(shape.dtype);
  const std::size_t q_width = std::size_t{1} * params.heads * (params.nope + params.rope);
  const std::size_t out_width = std::size_t{1} * params.heads * params.width();
  const LatentArgs args = {
      params.heads, params.nope,        params.rope, params.rank, shape.dtype == DType::bf16,
      params.norm,  params.norm_epsilon};
  for_each(pool_, attended_.rows, attended_.rows * static_cast<std::int64_t>(q_width), [&](int r) {
    const RowPlace& place = places_[r];
    LatentRow row;
    row.q = q + r * q_width;
    row.kv = kv + static_cast<std::ptrdiff_t>(r) * params.width();
    row.cos_sin = rope.cos_sin + static_cast<std::size_t>(place.position) * params.rope;
    row.nope_out = nope_out + std::size_t{1} * r * params.nope * element;
    row.nope_head = std::size_t{1} * attended_.rows * params.nope;
    row.q_out = q_out + r * out_width * element;
    row.vector = batch_->cache + place.block * shape.block_bytes() + layer * shape.layer_bytes() +
                 std::size_t{1} * place.slot * params.width() * element;
    kernels_.latent_rope_and_store(args, row);
  });
}

void CpuOperations::latent_attention(const LatentParams& params, int layer, const std::byte* q,
                                     std::byte* out) {
  expect(params.heads == batch_->heads && batch_->kv.latent(), "heads of another model");
  const auto rank = static_cast<std::size_t>(params.rank);
  const auto width = static_cast<std::size_t>(params.width());
  AttentionArgs sizes = {};
  sizes.head_dim = params.width();
  sizes.value_dim = sizes.out_dim = params.rank;
  sizes.latent = true;
  sizes.scale = params.scale;
  sizes.group = params.heads;
  sizes.q = {params.heads * width, width};
  sizes.out = {rank, attended_.rows * rank};
  attend(sizes, layer, q, out);
}

void CpuOperations::attend(const AttentionArgs& sizes, int layer, const std::byte* q,
                           std::byte* out) {
  const KvShape& kv = batch_->kv;
  const std::size_t head_bytes = kv.vector_bytes();
  const AttentionUnits& cut = attention_units_;
  AttentionArgs largest = sizes;
  largest.heads = cut.most_heads();
  const std::size_t scratch_bytes =
      attention_scratch_floats(largest, cut.most_rows() * sizes.group, cut.longest_path()) *
      sizeof(float);
  states_.reserve(cut.state_floats() * sizeof(float));
  const auto run = [&](Workspace& space, const AttentionTask& task, auto function) {
    const AttentionUnit& unit = cut.units()[task.unit];
    space.attending.clear();
    for (const AttentionPiece& piece : cut.pieces(unit)) {
      const Chain& chain = chains_[piece.chain];
      const int row = chain.first_row - attended_.first_row + piece.first;
      const int head = task.first_head * sizes.group;
      const auto at = [&](const HeadStrides& strides) {
        return (row * strides.row + head * strides.head) * size_of(kv.dtype);
      };
      space.attending.push_back({chain.blocks, q + at(sizes.q), out + at(sizes.out), piece.rows,
                                 chain.first_position + piece.first, chain.seen, chain.path,
                                 chain.base});
    }
    AttentionArgs args = sizes;
    args.cache = batch_->cache + layer * kv.layer_bytes() + task.first_head * head_bytes;
    args.values = kv.kv_heads * head_bytes;
    args.head_bytes = head_bytes;
    args.block_bytes = kv.block_bytes();
    args.block = kv.block;
    args.heads = task.heads;
    args.bf16 = kv.dtype == DType::bf16;
    args.sequences = space.attending.data();
    args.count = static_cast<int>(space.attending.size());
    args.row_heads = unit.rows * sizes.group;
    args.shared = unit.shared;
    args.scratch = reinterpret_cast<float*>(space.scratch.data());
    if (task.segments > 0) {
      args.states = reinterpret_cast<float*>(states_.data()) + task.states;
      args.first = task.first_segment * kAttentionSegment;
      args.segments = task.segments;
    }
    function(args);
  };
  const std::span<const AttentionTask> tasks = cut.tasks();
  const auto row_work = static_cast<std::int64_t>(sizes.q.row);
  if (tasks.size() == 1 || cut.work() * row_work < 8 * kParallelElements) {
    workspaces_[0].scratch.reserve(scratch_bytes);
    for (const AttentionTask& task : tasks) run(workspaces_[0], task, kernels_.attention);
    for (const AttentionTask& task : cut.sums()) run(workspaces_[0], task, kernels_.attention_sum);
    return;
  }
  for (Workspace& space : workspaces_) space.scratch.reserve(scratch_bytes);
  pool_.for_units(static_cast<int>(tasks.size()), [&](int thread, int task) {
    run(workspaces_[thread], tasks[task], kernels_.attention);
  });
  for (const AttentionTask& task : cut.sums()) run(workspaces_[0], task, kernels_.attention_sum);
}

void CpuOperations::store_columns(const float* in, int rows, int width, DType dtype, std::byte* out,
                                  int out_width, int first_column) {
  for_each(pool_, rows, static_cast<std::int64_t>(rows) * width, [&](int r) {
    const float* from = in + static_cast<std::size_t>(r) * width;
    std::byte* to = out + (static_cast<std::size_t>(r) * out_width + first_column) * size_of(dtype);
    if (dtype == DType::f32) {
      std::memcpy(to, from, static_cast<std::size_t>(width) * sizeof(float));
      return;
    }
    for (int i = 0; i < width; ++i) {
      const std::uint16_t bits = float_to_bf16(from[i]);
      std::memcpy(to + i * sizeof bits, &bits, sizeof bits);
    }
  });
}

void CpuOperations::scatter_columns(const float* in, int rows, int width,
                                    const std::int32_t* columns, float* out, int out_width) {
  for_each(pool_, rows, static_cast<std::int64_t>(rows) * width, [&](int r) {
    const float* from = in + static_cast<std::size_t>(r) * width;
    float* to = out + static_cast<std::size_t>(r) * out_width;
    for (int i = 0; i < width; ++i) to[columns[i]] = from[i];
  });
}

void CpuOperations::gather_rows(const std::byte* in, std::size_t bytes, std::byte* out) {
  for (int i = 0; i < rows_.logit_rows; ++i) {
    std::memcpy(out + i * bytes, in + (logit_rows_[i] - rows_.first_row) * bytes, bytes);
  }
}

}  // namespace paceline::kernels::cpu
