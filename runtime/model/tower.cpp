#include "runtime/model/tower.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "runtime/core/error.hpp"
#include "runtime/model/activations.hpp"
#include "runtime/model/sharding.hpp"
#include "runtime/model/weight_loader.hpp"

namespace paceline::model {
namespace {

constexpr float kNormEpsilon = 1e-6F;  // for all norms; config.json's is the decoder's
constexpr int kBlock = 16;             // positions of a KV block

TowerNorm loaded(const WeightLoader& loader, const BiasedNorm& norm) {
  TowerNorm weights{loader.uploaded(norm.weight), nullptr};
  if (norm.bias) weights.bias = loader.uploaded(*norm.bias);
  return weights;
}

/// A range of rows that attend to one another only.
struct Stretch {
  int first_row = 0;
  int rows = 0;
};

/// The order in which the tower computes a picture's results, in which the results of a window are
/// neighbours, and the rows of patches of each window.
struct Order {
  std::vector<std::int32_t> results;  ///< [results] index in the picture
  std::vector<Stretch> windows;
};

Order order_of(const TowerConfig& config, const PictureGrid& grid) {
  const std::int32_t rows = grid.rows / config.merge;
  const std::int32_t columns = grid.columns / config.merge;
  const std::int32_t unit = config.merge * config.merge;
  const std::int32_t side = config.window > 0 ? config.window : std::max(rows, columns);
  Order order;
  for (std::int32_t top = 0; top < rows; top += side) {
    for (std::int32_t left = 0; left < columns; left += side) {
      const auto before = static_cast<std::int32_t>(order.results.size());
      for (std::int32_t y = top; y < std::min(top + side, rows); ++y) {
        for (std::int32_t x = left; x < std::min(left + side, columns); ++x)
          order.results.push_back(y * columns + x);
      }
      const auto after = static_cast<std::int32_t>(order.results.size());
      order.windows.push_back({before * unit, (after - before) * unit});
    }
  }
  return order;
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

/// Elements of a patch's row in the buffers of a pass: the widest result and the widest input of a
/// product.
struct Widths {
  std::size_t result = 0;
  std::size_t input = 0;
  Widths(const TowerConfig& config, bool gated) {
    const std::size_t width = config.width;
    const std::size_t inner = config.intermediate;
    result = std::max({3 * width, (gated ? 2 : 1) * inner, width * config.merge * config.merge});
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

// Counts the buffers of Pass, and three copies of the patches: as given, in the tower's order, and
// uploaded.
std::uint64_t tower_pass_bytes(const TowerConfig& config, DType compute, std::int64_t patches) {
  const Widths widths(config, true);
  const std::uint64_t fp32 = 2 * config.width + widths.result + 3 * config.patch_elements();
  const std::uint64_t rounded = widths.input + 4 * std::uint64_t{1} * config.width;
  return static_cast<std::uint64_t>(patches) * (sizeof(float) * fp32 + size_of(compute) * rounded);
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

/// The computation of one picture. Keys and values of a layer are stored as in a decoder, each
/// stretch in its own blocks. Then every row attends like the last row of a sequence, which sees
/// its whole stretch.
class Tower::Pass {
 public:
  Pass(kernels::Backend& backend, const TowerWeights& weights, const PictureGrid& grid)
      : backend_(backend),
        weights_(weights),
        config_(weights.config()),
        order_(order_of(config_, grid)),
        rows_(static_cast<int>(grid.patches())),
        activations_(backend) {
    const std::size_t width = config_.width;
    const std::size_t element = size_of(weights.compute());
    const Widths widths(config_, weights.layers().empty() || weights.layers()[0].gated);
    residual_ = activations_.make<float>(rows_, width);
    delta_ = activations_.make<float>(rows_, width);
    wide_ = activations_.make<float>(rows_, widths.result);
    input_ = activations_.make<std::byte>(rows_, widths.input * element);
    query_ = activations_.make<std::byte>(rows_, width * element);
    attended_ = activations_.make<std::byte>(rows_, width * element);
    recording_ = backend.make_recording({weights.bytes(), false, false});
    tokens_.resize(rows_, 0);

    kv_ = {.layers = 1,
           .kv_heads = config_.heads,
           .head_dim = config_.head_dim(),
           .block = kBlock,
           .dtype = weights.compute()};
    place(grid);
    rope_ = kernels::upload(backend, rope_of(config_, rows_));
    const int quarter = config_.head_dim() / 4;
    rope_view_ = {floats(rope_), config_.head_dim(), rows_, {0, quarter, quarter}};
  }

  std::vector<float> compute(std::span<const float> patches) {
    embed(patches);
    const float* added = nullptr;
    for (std::int32_t n = 0; n < config_.layers; ++n) {
      const TowerLayerWeights& layer = weights_.layers()[n];
      const bool windowed = config_.is_windowed(n);
      run(windowed ? windows_ : whole_, [&](kernels::Operations& operations) {
        norm(operations, layer.attention_norm, added);
        operations.linear(*layer.qkv, input_.row(0), rows_, wide_.row(0));
        operations.rope_and_store(params(), rope_view_, 0, wide_.row(0), query_.row(0));
      });
      run(windowed ? within_windows_ : within_whole_, [&](kernels::Operations& operations) {
        operations.attention(params(), 0, query_.row(0), attended_.row(0));
        operations.linear(*layer.output, attended_.row(0), rows_, delta_.row(0));
        norm(operations, layer.mlp_norm, delta_.row(0));
        mlp(operations, layer);
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

  /// Sets the positions of rows, and the blocks of their stretches.
  void place(const PictureGrid& grid) {
    const std::int32_t merge = config_.merge;
    const std::int32_t columns = grid.columns / merge;
    for (const std::int32_t result : order_.results) {
      for (std::int32_t i = 0; i < merge * merge; ++i) {
        rotary_.push_back(
            {0, result / columns * merge + i / merge, result % columns * merge + i % merge});
      }
    }
    int most = 0;
    const auto blocks_of = [](int rows) { return (rows + kBlock - 1) / kBlock; };
    for (const Stretch& window : order_.windows) most += blocks_of(window.rows);
    blocks_.resize(std::max(most, blocks_of(rows_)));
    std::iota(blocks_.begin(), blocks_.end(), 0);
    cache_ = backend_.allocate(kv_.block_bytes() * blocks_.size());
    int first_block = 0;
    for (const Stretch& window : order_.windows) {
      add(window, first_block, windows_, within_windows_);
      first_block += blocks_of(window.rows);
    }
    add({0, rows_}, 0, whole_, within_whole_);
  }

  void add(const Stretch& stretch, int first_block, Segments& stores, Segments& attends) const {
    const std::int32_t* blocks = blocks_.data() + first_block;
    stores.push_back({stretch.first_row, stretch.rows, 0, blocks});
    for (int row = 0; row < stretch.rows; ++row)
      attends.push_back({stretch.first_row + row, 1, stretch.rows - 1, blocks});
  }

  void run(const Segments& segments, const std::function<void(kernels::Operations&)>& compute) {
    backend_.begin({.tokens = tokens_,
                    .segments = segments,
                    .logit_rows = {},
                    .heads = config_.heads,
                    .kv = kv_,
                    .cache = cache_->data(),
                    .vocab = 1,
                    .positions = rows_,
                    .pictures = {rotary_, {}}});
    backend_.run(*recording_, compute);
  }

  void embed(std::span<const float> patches) {
    const auto elements = static_cast<int>(config_.patch_elements());
    const std::int32_t unit = config_.merge * config_.merge;
    if (patches.size() != static_cast<std::size_t>(rows_) * elements)
      throw Error(ExitCode::internal, "patches of another picture");
    std::vector<float> ordered;
    ordered.reserve(patches.size());
    for (const std::int32_t result : order_.results) {
      const auto of_result = patches.subspan(std::size_t{1} * result * unit * elements,
                                             std::size_t{1} * unit * elements);
      ordered.insert(ordered.end(), of_result.begin(), of_result.end());
    }
    const Vector input = kernels::upload(backend_, ordered);
    run(whole_, [&](kernels::Operations& operations) {
      operations.store_columns(floats(input), rows_, elements, weights_.compute(), input_.row(0),
                               elements, 0);
      operations.linear(weights_.patch(), input_.row(0), rows_, residual_.row(0));
    });
  }

  void norm(kernels::Operations& operations, const TowerNorm& weights, const float* added) {
    if (weights.bias != nullptr) {
      operations.add_layernorm(residual_.row(0), added, floats(weights.weight),
                               floats(weights.bias), kNormEpsilon, rows_, config_.width,
                               weights_.compute(), input_.row(0));
    } else {
      operations.add_rmsnorm(residual_.row(0), added, floats(weights.weight), kNormEpsilon, rows_,
                             config_.width, weights_.compute(), input_.row(0));
    }
  }

  void mlp(kernels::Operations& operations, const TowerLayerWeights& layer) {
    operations.linear(*layer.up, input_.row(0), rows_, wide_.row(0));
    if (layer.gated) {
      operations.swiglu(wide_.row(0), rows_, config_.intermediate, weights_.compute(),
                        input_.row(0));
    } else {
      operations.gelu(kernels::Gelu::quick, wide_.row(0), rows_, config_.intermediate,
                      weights_.compute(), input_.row(0));
    }
    operations.linear(*layer.down, input_.row(0), rows_, delta_.row(0));
  }

  std::vector<float> merge(const float* added) {
    const int results = static_cast<int>(order_.results.size());
    const int merged = weights_.merger_up().n();
    const int hidden = weights_.merger_down().n();
    const auto made = backend_.allocate(sizeof(float) * results * hidden);
    auto* const out = reinterpret_cast<float*>(made->data());
    run(whole_, [&](kernels::Operations& operations) {
      norm(operations, weights_.merger_norm(), added);
      operations.linear(weights_.merger_up(), input_.row(0), results, wide_.row(0));
      operations.gelu(kernels::Gelu::exact, wide_.row(0), results, merged, weights_.compute(),
                      input_.row(0));
      operations.linear(weights_.merger_down(), input_.row(0), results, out);
    });
    std::vector<float> ordered(static_cast<std::size_t>(results) * hidden);
    backend_.read(made->data(), std::as_writable_bytes(std::span(ordered)));
    std::vector<float> rows(ordered.size());
    for (int i = 0; i < results; ++i) {
      std::copy_n(ordered.begin() + std::ptrdiff_t{i} * hidden, hidden,
                  rows.begin() + std::ptrdiff_t{order_.results[i]} * hidden);
    }
    return rows;
  }

  kernels::Backend& backend_;
  const TowerWeights& weights_;
  const TowerConfig& config_;
  const Order order_;
  const int rows_;  ///< patches
  Activations activations_;
  Activation<float> residual_, delta_;  ///< [rows, width]
  Activation<float> wide_;              ///< [rows, the widest result of a product]
  Activation<std::byte> input_;         ///< [rows, the widest input of a product]
  Activation<std::byte> query_, attended_;
  std::unique_ptr<kernels::Recording> recording_;
  kernels::KvShape kv_;
  std::unique_ptr<kernels::Buffer> cache_;
  std::vector<TokenId> tokens_;  ///< [rows] unused ids
  std::vector<RotaryPosition> rotary_;
  std::vector<std::int32_t> blocks_;
  Segments windows_, whole_;                ///< one for each stretch, to store keys and values
  Segments within_windows_, within_whole_;  ///< one for each row, to attend
  Vector rope_;
  kernels::RopeTable rope_view_;
};

Tower::Tower(kernels::Backend& backend, std::shared_ptr<const TowerWeights> weights)
    : backend_(backend), weights_(std::move(weights)) {}

std::vector<float> Tower::compute(std::span<const float> patches, const PictureGrid& grid) {
  return Pass(backend_, *weights_, grid).compute(patches);
}

}  // namespace paceline::model
