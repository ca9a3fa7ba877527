// The decoder at head sizes and widths that the parity checkpoints do not have, against float64;
// and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/error.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/model/decoder.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/model/rope.hpp"
#include "tests/kernels/test_backends.hpp"
#include "tests/runtime/model/load_weights.hpp"
#include "tests/runtime/model/random_model.hpp"

namespace paceline {
namespace {

using Vector = std::vector<double>;

ModelConfig shape(const Family& family, int head_dim, int hidden, int intermediate) {
  ModelConfig config;
  config.family = &family;
  config.vocab = 70;
  config.hidden = hidden;
  config.intermediate = intermediate;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = head_dim;
  config.max_position = 128;
  config.norm_epsilon = 1e-5F;
  config.attention_bias = &family == &model::qwen2;
  config.qk_norm = &family == &model::qwen3;
  config.dtype = DType::f32;
  test::add_experts(config);
  if (family.latent_attention) {
    config.kv_heads = config.heads;
    config.latent = LatentConfig{.q_rank = 24, .kv_rank = 32, .rope = 8, .value_dim = 12};
  }
  return config;
}

/// A decoder of one sequence as the formulas say it, in float64.
class Reference {
 public:
  Reference(const ModelConfig& config, const test::RandomModel& weights)
      : config_(config),
        model_(describe(config)),
        weights_(weights),
        rope_(model::rope_table(config, config.max_position)),
        keys_(config.layers),
        values_(config.layers) {}

  /// Logits after the next token.
  Vector next(TokenId token) {
    const int d = config_.head_dim;
    const auto& table = weights_.values("model.embed_tokens.weight");
    Vector x(config_.hidden);
    for (int i = 0; i < config_.hidden; ++i) x[i] = table[token * config_.hidden + i];
    for (int layer = 0; layer < config_.layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      const std::string attention = prefix + "self_attn.";
      Vector in = norm(x, prefix + "input_layernorm.weight");
      Vector q = project(in, attention + "q_proj", config_.attention_bias);
      Vector k = project(in, attention + "k_proj", config_.attention_bias);
      for (int h = 0; h < config_.heads; ++h) turn(q, h, attention + "q_norm.weight");
      for (int h = 0; h < config_.kv_heads; ++h) turn(k, h, attention + "k_norm.weight");
      keys_[layer].push_back(k);
      values_[layer].push_back(project(in, attention + "v_proj", config_.attention_bias));
      Vector attended(q.size());
      for (int h = 0; h < config_.heads; ++h) {
        const int from = h / (config_.heads / config_.kv_heads) * d;
        Vector scores;
        double total = 0;
        for (const Vector& key : keys_[layer]) {
          const double score = std::inner_product(key.begin() + from, key.begin() + from + d,
                                                  q.begin() + h * d, 0.0);
          scores.push_back(std::exp(score / std::sqrt(d)));
          total += scores.back();
        }
        for (std::size_t t = 0; t < scores.size(); ++t) {
          for (int i = 0; i < d; ++i)
            attended[h * d + i] += scores[t] / total * values_[layer][t][from + i];
        }
      }
      add(x, project(attended, attention + "o_proj", false));
      in = norm(x, prefix + "post_attention_layernorm.weight");
      const LayerDescription& described = model_.layers[layer];
      if (const auto* dense = std::get_if<GatedMlp>(&described.mlp)) {
        add(x, mlp(in, *dense));
      } else {
        add_experts(x, in, std::get<ExpertMlp>(described.mlp));
      }
    }
    ++position_;
    return project(norm(x, "model.norm.weight"), "lm_head", false);
  }

 private:
  static void add(Vector& x, const Vector& delta, double scale = 1) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += scale * delta[i];
  }
  [[nodiscard]] Vector mlp(const Vector& in, const GatedMlp& mlp) const {
    const Vector gate = project(in, mlp.gate.name, false);
    Vector up = project(in, mlp.up.name, false);
    for (std::size_t i = 0; i < up.size(); ++i) up[i] *= gate[i] / (1 + std::exp(-gate[i]));
    return project(up, mlp.down.name, false);
  }
  void add_experts(Vector& x, const Vector& in, const ExpertMlp& experts) const {
    const Vector logits = project(in, experts.router.name, false);
    std::vector<int> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return logits[a] > logits[b]; });
    const ExpertConfig& config = *config_.experts;
    double total = 0;
    for (int i = 0; i < (config.normalised ? config.chosen : config.routed); ++i)
      total += std::exp(logits[order[i]]);
    for (int i = 0; i < config.chosen; ++i) {
      const int id = order[i];
      add(x, mlp(in, experts.expert(id)), std::exp(logits[id]) / total);
    }
    if (!experts.shared) return;
    const double gate = project(in, experts.shared_gate->name, false)[0];
    add(x, mlp(in, *experts.shared), 1 / (1 + std::exp(-gate)));
  }
  [[nodiscard]] Vector norm(const Vector& x, const std::string& name) const {
    const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(x.size()) + config_.norm_epsilon);
    Vector out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weights_.values(name)[i];
    return out;
  }
  [[nodiscard]] Vector project(const Vector& x, const std::string& name, bool bias) const {
    const std::vector<float>& weight = weights_.values(name + ".weight");
    Vector out(weight.size() / x.size());
    for (std::size_t n = 0; n < out.size(); ++n) {
      out[n] = bias ? weights_.values(name + ".bias")[n] : 0;
      for (std::size_t i = 0; i < x.size(); ++i) out[n] += weight[n * x.size() + i] * x[i];
    }
    return out;
  }
  // Normalises head h where the model does, and rotates it to the position.
  void turn(Vector& heads, int h, const std::string& name) const {
    const int d = config_.head_dim;
    Vector x(heads.begin() + h * d, heads.begin() + (h + 1) * d);
    if (config_.qk_norm) x = norm(x, name);
    for (int i = 0; i < d / 2; ++i) {
      const double c = rope_[position_ * d + i];
      const double s = rope_[position_ * d + d / 2 + i];
      heads[h * d + i] = x[i] * c - x[d / 2 + i] * s;
      heads[h * d + d / 2 + i] = x[d / 2 + i] * c + x[i] * s;
    }
  }

  const ModelConfig& config_;
  ModelDescription model_;
  const test::RandomModel& weights_;
  std::vector<float> rope_;
  std::vector<std::vector<Vector>> keys_, values_;  // [layers][positions]
  std::size_t position_ = 0;
};

constexpr int kTokens = 70;

/// Logits of every position, computed in pieces of `piece` tokens.
std::vector<float> logits_of(kernels::Backend& backend, const ModelConfig& config,
                             const WeightSource& weights, DType compute, int piece) {
  fabric::SingleRankGroup group;
  model::Decoder decoder(backend, model::load_weights(backend, config, weights, group, compute),
                         group, kTokens, kTokens, kTokens);
  const kernels::KvShape kv = decoder.kv_shape(16);
  const auto cache = backend.allocate(kv.block_bytes() * 5);
  const std::vector<std::int32_t> blocks = {3, 1, 4, 0, 2};
  std::vector<float> all;
  for (int first = 0; first < kTokens; first += piece) {
    const int rows = std::min(piece, kTokens - first);
    std::vector<TokenId> tokens(rows);
    for (int i = 0; i < rows; ++i) tokens[i] = (first + i) * 29 % config.vocab;
    std::vector<std::int32_t> logit_rows(rows);
    std::iota(logit_rows.begin(), logit_rows.end(), 0);
    const kernels::Segment segment{0, rows, first, blocks.data()};
    const float* out = decoder.forward(tokens, {&segment, 1}, logit_rows, kv, cache->data());
    std::vector<float> logits(static_cast<std::size_t>(rows) * config.vocab);
    backend.read(reinterpret_cast<const std::byte*>(out),
                 std::as_writable_bytes(std::span(logits)));
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

class Shapes : public testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<kernels::Backend> backend_ = kernels::test::backend_named(GetParam(), 2);
};

TEST_P(Shapes, BuffersOfARowAreWhatAPlanCounts) {
  for (const ModelConfig& config :
       {shape(model::qwen3, 64, 32, 64), shape(model::qwen2_moe, 64, 32, 64),
        shape(model::deepseek, 16, 32, 64)}) {
    const test::RandomModel weights(config);
    fabric::SingleRankGroup group;
    for (const DType compute : {DType::bf16, DType::f32}) {
      const auto loaded = model::load_weights(*backend_, config, weights, group, compute);
      const auto bytes = [&](int rows) {
        return model::Decoder(*backend_, loaded, group, rows, 1, kTokens).activation_bytes();
      };
      // A backend that does not gate as it multiplies needs room for gates and ups besides.
      const std::uint64_t width =
          config.intermediate + (config.experts ? config.experts->shared_width : 0);
      const std::uint64_t ungated = backend_->gates_in_work() ? 2 * sizeof(float) * width : 0;
      const int few = backend_->padded({8, 1}).rows;
      const int many = backend_->padded({64, 1}).rows;
      EXPECT_EQ(bytes(many) - bytes(few),
                (many - few) * (model::row_bytes(config, compute, 1) + ungated));
    }
  }
}

TEST_P(Shapes, LogitsMatchFloat64WhateverTheSizes) {
  for (const ModelConfig& config :
       {shape(model::llama, 40, 64, 96), shape(model::qwen3, 40, 160, 104),
        shape(model::qwen2, 80, 62, 90), shape(model::llama, 96, 48, 64),
        shape(model::qwen3, 256, 32, 64), shape(model::llama, 8, 24, 40),
        shape(model::qwen2, 104, 66, 70), shape(model::llama, 16, 65, 97),
        shape(model::qwen3, 24, 33, 31), shape(model::qwen2, 32, 64, 95),
        shape(model::qwen2_moe, 32, 64, 96), shape(model::qwen3_moe, 16, 62, 90),
        shape(model::mixtral, 24, 96, 64), shape(model::mixtral, 8, 33, 31)}) {
    SCOPED_TRACE("heads of " + std::to_string(config.head_dim) + ", hidden " +
                 std::to_string(config.hidden) + ", intermediate " +
                 std::to_string(config.intermediate));
    const test::RandomModel weights(config);
    if (!kernels::unsupported(backend_->info().name, config).empty()) {
      EXPECT_EQ(GetParam(), "cuda");
      EXPECT_THROW(static_cast<void>(logits_of(*backend_, config, weights, DType::f32, kTokens)),
                   DataError);
      continue;
    }
    Reference reference(config, weights);
    Vector expected;
    for (int i = 0; i < kTokens; ++i) {
      const Vector row = reference.next(i * 29 % config.vocab);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    const double size =
        std::sqrt(std::inner_product(expected.begin(), expected.end(), expected.begin(), 0.0) /
                  static_cast<double>(expected.size()));
    for (const DType compute : {DType::f32, DType::bf16}) {
      const std::vector<float> logits = logits_of(*backend_, config, weights, compute, kTokens);
      double squares = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double error = logits[i] - expected[i];
        squares += error * error;
      }
      const double error = std::sqrt(squares / static_cast<double>(expected.size())) / size;
      // A row whose experts are nearly alike may get others in bf16.
      const double rounding = config.experts ? 0.3 : 0.05;
      EXPECT_LT(error, compute == DType::f32 ? 1e-5 : rounding) << name_of(compute);
      EXPECT_EQ(logits_of(*backend_, config, weights, compute, 1), logits) << name_of(compute);
      EXPECT_EQ(logits_of(*backend_, config, weights, compute, 23), logits) << name_of(compute);
    }
  }
}

TEST_P(Shapes, SizesThatNoBackendComputesAreDataErrors) {
  for (const int head_dim : {4, 20, 100, 264, 320}) {
    const ModelConfig config = shape(model::llama, head_dim, 32, 32);
    const test::RandomModel weights(config);
    try {
      static_cast<void>(logits_of(*backend_, config, weights, DType::f32, kTokens));
      ADD_FAILURE() << head_dim;
    } catch (const DataError& error) {
      EXPECT_EQ(std::string(error.what()),
                "head_dim (or hidden_size / num_attention_heads): expected a multiple of 8 up to "
                "256, found " +
                    std::to_string(head_dim));
    }
  }
}

TEST(LatentVectors, TakeTheBytesOfTheirLayout) {
  for (const auto& [name, bytes] : {std::pair{"Moonlight-16B-A3B", 31104}, {"Kimi-K2", 70272}}) {
    const ModelConfig config = io::load_model_sizes(
        model::families(), PACELINE_SOURCE_DIR "/configs/simulated/models/" + std::string(name));
    for (const int size : {1, 2, 4}) {  // each rank keeps them whole
      const kernels::KvShape shape = model::kv_shape(config, size, 16, DType::bf16);
      EXPECT_EQ(shape.block_bytes(), 16U * bytes) << name << ", " << size << " ranks";
    }
  }
}

/// One rank's place in a group, for reading weights alone.
class Place final : public TensorParallelGroup {
 public:
  Place(int rank, int size) : rank_(rank), size_(size) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void all_reduce_tree(std::span<float>) override {}
  void exchange_rows(std::span<const float>, std::span<const int>, std::span<const int>,
                     std::span<float>) override {}
  void all_gather(std::span<const std::byte>, std::span<const int>, std::span<std::byte>) override {
  }

 private:
  int rank_, size_;
};

/// What the ranks of a group say of a model's weights, one after the other.
std::vector<std::string> complaints(kernels::Backend& backend, const ModelConfig& config,
                                    const WeightSource& weights, int ranks, DType compute) {
  std::vector<std::string> all;
  for (int rank = 0; rank < ranks; ++rank) {
    Place group(rank, ranks);
    try {
      (void)model::load_weights(backend, config, weights, group, compute);
    } catch (const DataError& error) {
      all.emplace_back(error.what());
    }
  }
  return all;
}

/// That every tensor of a model whose values are not finite is named by whoever loads it.
void expect_names_of_bad_weights(kernels::Backend& backend, ModelConfig config) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const bool tied : {false, true}) {
    config.tied_embeddings = tied;
    test::RandomModel weights(config);
    for (const int ranks : {1, 2}) {
      EXPECT_TRUE(complaints(backend, config, weights, ranks, DType::bf16).empty());
      for (const ExpectedTensor& tensor : expected_tensors(describe(config))) {
        std::vector<float>& values = weights.values(tensor.name);
        const std::size_t at = values.size() - 3;
        const float before = values[at];
        const bool matrix = tensor.shape.size() == 2;
        const std::int64_t columns = tensor.shape.back();
        const std::string place = matrix ? "row " + std::to_string(at / columns) + ", column " +
                                               std::to_string(at % columns)
                                         : "element " + std::to_string(at);
        for (const float bad : {nan, infinity, -infinity}) {
          values[at] = bad;
          const std::string expected = "random.file: tensor '" + tensor.name + "', " + place +
                                       ": expected a finite number, found " +
                                       (std::isnan(bad) ? "nan"
                                        : bad > 0       ? "inf"
                                                        : "-inf");
          const auto said = complaints(backend, config, weights, ranks, DType::bf16);
          ASSERT_FALSE(said.empty()) << tensor.name << ", " << ranks << " ranks";
          for (const std::string& text : said) EXPECT_EQ(text, expected);
        }
        values[at] = before;
      }
    }
    // Finite, but not in bf16.
    std::vector<float>& values = weights.values("model.layers.1.mlp.up_proj.weight");
    values[7] = 3.4e38F;
    const auto said = complaints(backend, config, weights, 1, DType::bf16);
    ASSERT_EQ(said.size(), 1U);
    EXPECT_EQ(
        said[0],
        "random.file: tensor 'model.layers.1.mlp.up_proj.weight', row 0, column 7: expected a "
        "number that bf16 holds, found 3.4e+38");
    EXPECT_TRUE(complaints(backend, config, weights, 1, DType::f32).empty());
  }
}

TEST_P(Shapes, WeightsThatAreNotFiniteAreNamed) {
  for (const Family* family : {&model::qwen3, &model::qwen2_moe, &model::deepseek}) {
    if (family->latent_attention && GetParam() == "cuda") continue;  // many tensors, much emulation
    ModelConfig config = shape(*family, 8, 20, 24);
    config.vocab = 130;
    config.attention_bias = config.output_bias = config.mlp_bias = true;
    if (!kernels::unsupported(backend_->info().name, config).empty()) continue;
    expect_names_of_bad_weights(*backend_, config);
  }
}

// Of a matrix that is packed head by head, keys turned over.
TEST_P(Shapes, LatentKeysThatAreNotFiniteAreNamed) {
  const ModelConfig config = shape(model::deepseek, 8, 20, 24);
  test::RandomModel weights(config);
  const std::string name = "model.layers.1.self_attn.kv_b_proj.weight";
  weights.values(name)[21 * 32 + 7] = std::numeric_limits<float>::infinity();  // heads have 20 rows
  EXPECT_EQ(complaints(*backend_, config, weights, 1, DType::bf16),
            std::vector<std::string>{"random.file: tensor '" + name +
                                     "', row 21, column 7: expected a finite number, found inf"});
}

INSTANTIATE_TEST_SUITE_P(On, Shapes, testing::ValuesIn(kernels::test::backends()),
                         [](const auto& made) { return made.param; });

}  // namespace
}  // namespace paceline
