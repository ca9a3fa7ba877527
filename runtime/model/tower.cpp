#include "runtime/model/tower.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "runtime/core/error.hpp"
#include "runtime/model/activations.hpp"
#include "runtime/model/sharding.hpp"
#include "runtime/model/tower_order.hpp"
#include "runtime/model/weight_loader.hpp"

namespace paceline::model {
namespace {

constexpr float kNormEpsilon = 1e-6F;  // for all norms; config.json's is the decoder's
constexpr int kBlock = 16;             // positions of a KV block
/// Patches that pass through an MLP together: intermediate values stay in caches.
constexpr int kPiece = 512;
/// Elements of a head in a step of the tile unit.
constexpr int kHeadStep = 32;

TowerNorm loaded(const WeightLoader& loader, const BiasedNorm& norm) {
  TowerNorm weights{loader.uploaded(norm.weight), nullptr};
  if (norm.bias) weights.bias = loader.uploaded(*norm.bias);
  return weights;
}

/// cos and sin for positions [0, positions): [positions, head_dim]. The first half of a head's
/// pairs rotates by the patch's row, the second half by its column, with the same frequencies.
std::vector<float> rope_of(const TowerConfig& config, int positions) {
  const int half = config.head_dim() / 2;
  const int quarter = half / 2;
  std::vector<float> table(static_cast<std::size_t>(positions) * config.head_dim());
  for (int i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * (i % quarter)) / static_cast<float>(half);
    const float frequency = 1.0F / std::pow(static_cast<float>(config.rope_theta), exponent);
    for (int position = 0; position < positions; ++position) {
      float* row = table.data() + static_cast<std::size_t>(position) * config.head_dim();
      const float angle = static_cast<float>(position) * frequency;
      row[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      row[half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
  return table;
}

/// Outputs and inputs of the tower's matrices, in the order in which they are packed.
std::vector<std::pair<std::int64_t, std::int64_t>> matrices_of(const ModelConfig& config) {
  const TowerDescription tower = config.family->describe_tower(config);
  std::vector<std::pair<std::int64_t, std::int64_t>> matrices;
  const auto add = [&](const Projection& matrix) {
    matrices.emplace_back(matrix.outputs, matrix.inputs);
  };
  add(tower.patch);
  for (const TowerLayer& layer : tower.layers) {
    add(layer.qkv);
    add(layer.output);
    if (const auto* gated = std::get_if<GatedMlp>(&layer.mlp)) {
      matrices.emplace_back(gated->gate.outputs + gated->up.outputs, gated->gate.inputs);
      add(gated->down);
    } else {
      const auto& plain = std::get<PlainMlp>(layer.mlp);
      add(plain.up);
      add(plain.down);
    }
  }
  add(tower.merger.up);
  add(tower.merger.down);
  return matrices;
}

/// Elements of a head in the cache: on a CPU a multiple of the tile unit's step in bf16.
int stored_head_dim(const TowerConfig& config, DType compute, bool on_cpu = true) {
  if (compute == DType::f32 || !on_cpu) return config.head_dim();
  return (config.head_dim() + kHeadStep - 1) / kHeadStep * kHeadStep;
}

/// Elements of a patch's row in the buffers of a piece: the widest result and the widest input of a
/// product. A row of the merger has the elements of merge * merge of them.
struct Widths {
  std::size_t result = 0;
  std::size_t input = 0;
  Widths(const TowerConfig& config, bool gated) {
    const std::size_t width = config.width;
    const std::size_t inner = config.intermediate;
    result = std::max((gated ? 2 : 1) * inner, width);
    input = std::max({width, inner, static_cast<std::size_t>(config.patch_elements())});
  }
};

}  // namespace

std::size_t tower_packed_bytes(const kernels::Backend& backend, const ModelConfig& config,
                               DType compute) {
  std::size_t bytes = 0;
  for (const auto& [outputs, inputs] : matrices_of(config))
    bytes += backend.packed_bytes(outputs, inputs, compute);
  return bytes;
}

std::uint64_t tower_weight_bytes(const ModelConfig& config, DType compute) {
  std::int64_t elements = 0;
  for (const auto& [outputs, inputs] : matrices_of(config)) elements += outputs * inputs;
  return size_of(compute) * static_cast<std::uint64_t>(elements);
}

// Counts the buffers of Pass on one rank, and the patches; a rank of a larger group has fewer rows.
std::uint64_t tower_pass_bytes(const TowerConfig& config, DType compute, std::int64_t patches) {
  const Widths widths(config, true);
  const std::uint64_t stored = std::uint64_t{1} * config.heads * stored_head_dim(config, compute);
  const std::uint64_t fp32 = 5 * std::uint64_t{1} * config.width + config.patch_elements();
  const std::uint64_t rounded = config.width + 3 * stored;
  const std::uint64_t of_piece = sizeof(float) * (widths.result + config.patch_elements()) +
                                 2 * size_of(compute) * widths.input;
  return static_cast<std::uint64_t>(patches) * (sizeof(float) * fp32 + size_of(compute) * rounded) +
         kPiece * of_piece;
}

TowerWeights::TowerWeights(kernels::Backend& backend, const ModelConfig& config,
                           const WeightSource& source, DType compute, const SharedPacking& shared)
    : config_(*config.vision->tower), compute_(compute) {
  const TowerDescription tower = config.family->describe_tower(config);
  const Shard whole = shard_of(config, 0, 1);
  WeightLoader loader(backend, source, compute, shared);
  const auto pack = [&](std::initializer_list<const Projection*> matrices) {
    return loader.pack(matrices, whole, kernels::kAnySegments);
  };
  patch_ = loader.pack_flat(tower.patch);
  for (const TowerLayer& layer : tower.layers) {
    TowerLayerWeights& weights = layers_.emplace_back();
    weights.attention_norm = loaded(loader, layer.attention_norm);
    weights.qkv = pack({&layer.qkv});
    weights.output = pack({&layer.output});
    weights.mlp_norm = loaded(loader, layer.mlp_norm);
    if (const auto* gated = std::get_if<GatedMlp>(&layer.mlp)) {
      weights.gated = true;
      weights.up = pack({&gated->gate, &gated->up});
      weights.down = pack({&gated->down});
    } else {
      const auto& plain = std::get<PlainMlp>(layer.mlp);
      weights.up = pack({&plain.up});
      weights.down = pack({&plain.down});
    }
  }
  merger_norm_ = loaded(loader, tower.merger_norm);
  merger_up_ = pack({&tower.merger.up});
  merger_down_ = pack({&tower.merger.down});
  bytes_ = loader.bytes();
  source.release_pages();
}

/// The computation of this rank's rows of one picture. Keys and values of a layer are stored as in
/// a decoder, each stretch in its own blocks. A row sees its whole stretch.
class Tower::Pass {
 public:
  Pass(kernels::Backend& backend, const TowerWeights& weights, TensorParallelGroup& group,
       const PictureGrid& grid)
      : backend_(backend),
        weights_(weights),
        config_(weights.config()),
        group_(group),
        order_(tower_order(config_, grid)),
        unit_(config_.merge * config_.merge),
        first_result_(deal_results(config_, order_, kBlock, group.size())),
        first_row_(first_result_[group.rank()] * unit_),
        rows_(first_result_[group.rank() + 1] * unit_ - first_row_),
        all_rows_(static_cast<int>(grid.patches())),
        activations_(backend) {
    const std::size_t width = config_.width;
    const std::size_t element = size_of(weights.compute());
    const int piece = std::min(rows_, kPiece / unit_ * unit_);
    kv_ = {.layers = 1,
           .kv_heads = config_.heads,
           .head_dim = stored_head_dim(config_, weights.compute(), backend.info().name == "cpu"),
           .block = kBlock,
           .dtype = weights.compute()};
    const Widths widths(config_, weights.layers().empty() || weights.layers()[0].gated);
    const std::size_t stored = std::size_t{1} * config_.heads * kv_.head_dim;
    const int padded = backend.padded({rows_, 0}).rows;  // of passes
    residual_ = activations_.make<float>(rows_, width);
    delta_ = activations_.make<float>(rows_, width);
    qkv_ = activations_.make<float>(padded, 3 * width);
    query_ = activations_.make<std::byte>(padded, stored * element);
    attended_ = activations_.make<std::byte>(padded, width * element);
    wide_ = activations_.make<float>(piece, widths.result);
    input_ = activations_.make<std::byte>(piece, widths.input * element);
    inner_ = activations_.make<std::byte>(piece, widths.input * element);
    recording_ = backend.make_recording({weights.bytes(), false, false});
    tokens_.resize(rows_, 0);
    place(grid);
    rope_ = kernels::upload(backend, rope_of(config_, all_rows_));
    const int quarter = config_.head_dim() / 4;
    rope_view_ = {floats(rope_), config_.head_dim(), all_rows_, {0, quarter, quarter}};
  }

  std::vector<float> compute(std::span<const float> patches) {
    embed(patches);
    const float* added = nullptr;
    for (std::int32_t n = 0; n < config_.layers; ++n) {
      const TowerLayerWeights& layer = weights_.layers()[n];
      const bool windowed = config_.is_windowed(n);
      const Segments& stretches = windowed ? windows_ : whole_;
      run(stretches, [&](kernels::Operations& operations) {
        in_pieces([&](int first, int rows) {
          norm(operations, layer.attention_norm, added, first, rows);
          operations.linear(*layer.qkv, input_.row(0), rows, qkv_.row(first));
        });
        operations.rope_and_store(params(), rope_view_, 0, qkv_.row(0), query_.row(0));
      });
      if (!windowed) share_keys();
      run(stretches, [&](kernels::Operations& operations) {
        operations.attention(params(), 0, query_.row(0), attended_.row(0));
        in_pieces([&](int first, int rows) {
          operations.linear(*layer.output, attended_.row(first), rows, delta_.row(first));
          norm(operations, layer.mlp_norm, delta_.row(first), first, rows);
          mlp(operations, layer, first, rows);
        });
      });
      added = delta_.row(0);
    }
    return merge(added);
  }

 private:
  using Segments = std::vector<kernels::Segment>;

  [[nodiscard]] kernels::QkvParams params() const {
    return {config_.heads, config_.heads, config_.head_dim(), nullptr, nullptr, kNormEpsilon};
  }

  /// Sets the positions of this rank's rows, and the blocks of their stretches.
  void place(const PictureGrid& grid) {
    const std::int32_t merge = config_.merge;
    const std::int32_t columns = grid.columns / merge;
    for (int i = first_row_; i < first_row_ + rows_; ++i) {
      const std::int32_t result = order_.results[i / unit_];
      const std::int32_t part = i % unit_;
      rotary_.push_back(
          {0, result / columns * merge + part / merge, result % columns * merge + part % merge});
    }
    const auto blocks_of = [](int rows) { return (rows + kBlock - 1) / kBlock; };
    int most = blocks_of(all_rows_);
    int own = 0;
    for (const TowerStretch& window : order_.windows) own += blocks_of(window.rows);
    most = std::max(most, own);
    blocks_.resize(most);
    std::iota(blocks_.begin(), blocks_.end(), 0);
    cache_ = backend_.allocate(kv_.block_bytes() * blocks_.size());
    if (rows_ == 0) return;
    int first_block = 0;
    for (const TowerStretch& window : order_.windows) {
      const int first = window.first_row - first_row_;
      if (config_.window == 0 || first < 0 || first >= rows_) continue;
      windows_.push_back({.first_row = first,
                          .rows = window.rows,
                          .blocks = blocks_.data() + first_block,
                          .seen = window.rows});
      first_block += blocks_of(window.rows);
    }
    whole_.push_back(
        {.rows = rows_, .first_position = first_row_, .blocks = blocks_.data(), .seen = all_rows_});
  }

  void run(const Segments& segments, const std::function<void(kernels::Operations&)>& compute) {
    if (rows_ == 0) return;
    backend_.begin({.tokens = tokens_,
                    .segments = segments,
                    .logit_rows = {},
                    .heads = config_.heads,
                    .kv = kv_,
                    .cache = cache_->data(),
                    .vocab = 1,
                    .positions = all_rows_,
                    .pictures = {rotary_, {}}});
    backend_.run(*recording_, compute);
  }

  /// Calls f(first, rows) for one piece of this rank's rows after another.
  template <class F>
  void in_pieces(F&& f) const {
    const int most = kPiece / unit_ * unit_;
    for (int first = 0; first < rows_; first += most) f(first, std::min(most, rows_ - first));
  }

  /// Gives all ranks the keys and values that each has stored: whole blocks.
  void share_keys() {
    if (group_.size() == 1) return;
    std::vector<int> first_block;
    for (const int result : first_result_)
      first_block.push_back((result * unit_ + kBlock - 1) / kBlock);
    const std::size_t values = kv_.block_bytes() / sizeof(float) * first_block.back();
    group_.gather_rows({reinterpret_cast<float*>(cache_->data()), values}, first_block);
  }

  void embed(std::span<const float> patches) {
    const auto elements = static_cast<int>(config_.patch_elements());
    if (patches.size() != static_cast<std::size_t>(all_rows_) * elements)
      throw Error(ExitCode::internal, "patches of another picture");
    run(whole_, [&](kernels::Operations& operations) {
      in_pieces([&](int first, int rows) {
        std::vector<float> ordered;
        ordered.reserve(std::size_t{1} * rows * elements);
        for (int row = first_row_ + first; row < first_row_ + first + rows; row += unit_) {
          const std::size_t result = order_.results[row / unit_];
          const auto of_result = patches.subspan(result * unit_ * elements, unit_ * elements);
          ordered.insert(ordered.end(), of_result.begin(), of_result.end());
        }
        const Vector input = kernels::upload(backend_, ordered);
        operations.store_columns(floats(input), rows, elements, weights_.compute(), input_.row(0),
                                 elements, 0);
        operations.linear(weights_.patch(), input_.row(0), rows, residual_.row(first));
      });
    });
  }

  /// Norms of rows from `first` on, into input_.
  void norm(kernels::Operations& operations, const TowerNorm& weights, const float* added,
            int first, int rows) {
    float* const residual = residual_.row(first);
    const float* const delta = added == nullptr ? nullptr : delta_.row(first);
    if (weights.bias != nullptr) {
      operations.add_layernorm(residual, delta, floats(weights.weight), floats(weights.bias),
                               kNormEpsilon, rows, config_.width, weights_.compute(),
                               input_.row(0));
    } else {
      operations.add_rmsnorm(residual, delta, floats(weights.weight), kNormEpsilon, rows,
                             config_.width, weights_.compute(), input_.row(0));
    }
  }

  void mlp(kernels::Operations& operations, const TowerLayerWeights& layer, int first, int rows) {
    operations.linear(*layer.up, input_.row(0), rows, wide_.row(0));
    if (layer.gated) {
      operations.swiglu(wide_.row(0), rows, config_.intermediate, weights_.compute(),
                        inner_.row(0));
    } else {
      operations.gelu(kernels::Gelu::quick, wide_.row(0), rows, config_.intermediate,
                      weights_.compute(), inner_.row(0));
    }
    operations.linear(*layer.down, inner_.row(0), rows, delta_.row(first));
  }

  std::vector<float> merge(const float* added) {
    const int merged = weights_.merger_up().n();
    const int hidden = weights_.merger_down().n();
    const auto made = backend_.allocate(sizeof(float) * order_.results.size() * hidden);
    auto* const out = reinterpret_cast<float*>(made->data());
    run(whole_, [&](kernels::Operations& operations) {
      in_pieces([&](int first, int rows) {
        const int results = rows / unit_;
        norm(operations, weights_.merger_norm(), added, first, rows);
        operations.linear(weights_.merger_up(), input_.row(0), results, wide_.row(0));
        operations.gelu(kernels::Gelu::exact, wide_.row(0), results, merged, weights_.compute(),
                        inner_.row(0));
        operations.linear(weights_.merger_down(), inner_.row(0), results,
                          out + std::ptrdiff_t{(first_row_ + first) / unit_} * hidden);
      });
    });
    const std::size_t values = order_.results.size() * hidden;
    if (group_.size() > 1) group_.gather_rows({out, values}, first_result_);
    std::vector<float> ordered(values);
    backend_.read(made->data(), std::as_writable_bytes(std::span(ordered)));
    std::vector<float> rows(values);
    for (std::size_t i = 0; i < order_.results.size(); ++i) {
      std::copy_n(ordered.begin() + static_cast<std::ptrdiff_t>(i) * hidden, hidden,
                  rows.begin() + std::ptrdiff_t{order_.results[i]} * hidden);
    }
    return rows;
  }

  kernels::Backend& backend_;
  const TowerWeights& weights_;
  const TowerConfig& config_;
  TensorParallelGroup& group_;
  const TowerOrder order_;
  const int unit_;                       ///< patches of a result
  const std::vector<int> first_result_;  ///< [ranks + 1] deal_results()
  const int first_row_;                  ///< first row of this rank's patches, in order
  const int rows_;                       ///< number of its patches, maybe 0
  const int all_rows_;                   ///< patches of the picture
  Activations activations_;
  Activation<float> residual_, delta_;  ///< [rows, width]
  Activation<float> qkv_;               ///< [rows, 3 * width]
  Activation<std::byte> query_, attended_;
  Activation<float> wide_;       ///< [piece, the widest result of a product]
  Activation<std::byte> input_;  ///< [piece, the widest input of a product]
  Activation<std::byte> inner_;  ///< likewise
  std::unique_ptr<kernels::Recording> recording_;
  kernels::KvShape kv_;
  std::unique_ptr<kernels::Buffer> cache_;
  std::vector<TokenId> tokens_;         ///< [rows] unused ids
  std::vector<RotaryPosition> rotary_;  ///< [rows]
  std::vector<std::int32_t> blocks_;
  Segments windows_, whole_;  ///< one for each stretch, of this rank's rows
  Vector rope_;
  kernels::RopeTable rope_view_;
};

Tower::Tower(kernels::Backend& backend, std::shared_ptr<const TowerWeights> weights,
             TensorParallelGroup& group)
    : backend_(backend), weights_(std::move(weights)), group_(group) {}

std::vector<float> Tower::compute(std::span<const float> patches, const PictureGrid& grid) {
  return Pass(backend_, *weights_, group_, grid).compute(patches);
}

}  // namespace paceline::model
