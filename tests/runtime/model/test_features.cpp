// The features that a decoder gives of its rows: the residual stream as it enters some layers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "runtime/engine/executor.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/model/decoder.hpp"
#include "tests/kernels/test_backends.hpp"
#include "tests/runtime/model/load_weights.hpp"
#include "tests/runtime/model/random_model.hpp"

namespace paceline {
namespace {

constexpr int kBlock = 16;
constexpr int kBlocks = 4;
constexpr int kRows = 40;

ModelConfig config_of(int layers) { return test::small_config(layers, kBlock * kBlocks); }

/// A model and its weights, of which shallower ones take the first layers.
struct Source {
  explicit Source(const ModelConfig& of) : config(of), weights(of) {}
  ModelConfig config;
  test::RandomModel weights;
};

class Features : public testing::TestWithParam<std::string> {
 protected:
  Features() {
    for (int i = 0; i < kRows; ++i) tokens_.push_back((7 * i + 3) % 80);
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  struct Pass {
    std::vector<float> logits;    ///< [rows, vocab]
    std::vector<float> features;  ///< [rows, features, hidden]
  };
  /// The tokens in two passes, in fp32, by the first layers of the model. Where `first_is_silent`
  /// no logits of the first pass are wanted.
  Pass run(const Source& source, int layers, const std::vector<std::int32_t>& features = {},
           bool first_is_silent = false) {
    ModelConfig config = source.config;
    config.layers = layers;
    model::Decoder decoder(
        *backend_, model::load_weights(*backend_, config, source.weights, group_, DType::f32),
        group_, kRows, kRows, kBlock * kBlocks, features);
    EXPECT_EQ(decoder.features() != nullptr, !features.empty());
    const kernels::KvShape kv = decoder.kv_shape(kBlock);
    const auto cache = backend_->allocate(kv.block_bytes() * kBlocks);
    Pass pass;
    for (const auto& [first, rows] : {std::pair{0, 23}, {23, kRows - 23}}) {
      const kernels::Segment segment{0, rows, first, blocks_.data()};
      std::vector<std::int32_t> all(rows);
      std::iota(all.begin(), all.end(), 0);
      if (first_is_silent && first == 0) all.clear();
      const float* logits = decoder.forward(std::span(tokens_).subspan(first, rows), {&segment, 1},
                                            all, kv, cache->data());
      append(pass.logits, logits, all.size() * config.vocab);
      if (features.empty()) continue;
      EXPECT_EQ(decoder.feature_bytes(), features.size() * config.hidden * sizeof(float));
      append(pass.features, reinterpret_cast<const float*>(decoder.features()),
             features.size() * rows * config.hidden);
    }
    return pass;
  }
  void append(std::vector<float>& to, const float* from, std::size_t count) {
    const std::size_t before = to.size();
    to.resize(before + count);
    backend_->read(reinterpret_cast<const std::byte*>(from),
                   std::as_writable_bytes(std::span(to).subspan(before)));
  }

  std::shared_ptr<kernels::Backend> backend_ = kernels::test::backend_named(GetParam());
  fabric::SingleRankGroup group_;
  std::vector<TokenId> tokens_;
  std::vector<std::int32_t> blocks_ = std::vector<std::int32_t>(kBlocks);
};

// What enters a layer is what leaves the model that ends before it: its logits are the output's of
// the normalised feature.
TEST_P(Features, AreWhatTheLayersBeforeComeTo) {
  // As published, and as a head may ask for: other layers, more of them, what leaves the last.
  for (const auto& [layers, entered] : std::vector<std::pair<int, std::vector<std::int32_t>>>{
           {3, {2, 1, 0}}, {6, {2, 3, 3}}, {9, {2, 4, 6}}, {4, {1, 4}}, {5, {0, 1, 2, 4, 5}}}) {
    const Source source(config_of(layers));
    const Pass whole = run(source, layers, entered);
    EXPECT_EQ(whole.logits, run(source, layers).logits);
    EXPECT_EQ(whole.features, run(source, layers, entered, true).features);
    const int count = static_cast<int>(entered.size());
    const int hidden = source.config.hidden;
    const int vocab = source.config.vocab;
    const std::vector<float>& norm = source.weights.values("model.norm.weight");
    const std::vector<float>& head = source.weights.values("lm_head.weight");
    for (int i = 0; i < count; ++i) {
      if (entered[i] == 0) continue;  // a model without layers has no name
      const Pass before = run(source, entered[i]);
      for (int row = 0; row < kRows; ++row) {
        const float* x = whole.features.data() + (count * row + i) * hidden;
        double squares = 0;
        for (int k = 0; k < hidden; ++k) squares += static_cast<double>(x[k]) * x[k];
        const double scale = 1 / std::sqrt(squares / hidden + source.config.norm_epsilon);
        for (int token = 0; token < vocab; ++token) {
          double logit = 0;
          for (int k = 0; k < hidden; ++k)
            logit += x[k] * scale * norm[k] * head[token * hidden + k];
          ASSERT_NEAR(before.logits[row * vocab + token], logit, 1e-4)
              << "feature " << i << " of row " << row << ", " << layers << " layers";
        }
      }
    }
  }
}

TEST_P(Features, AreReadOfAnyRows) {
  const Source source(config_of(6));
  const Pass whole = run(source, 6, {2, 3, 4});
  engine::Executor executor(
      *backend_, model::load_weights(*backend_, source.config, source.weights, group_, DType::f32),
      group_, {}, {},
      {.max_batch = 1,
       .prefill_chunk = kRows,
       .kv_block = kBlock,
       .kv_blocks = kBlocks,
       .max_position = kBlock * kBlocks,
       .features = {2, 3, 4}});
  engine::Step step;
  for (int b = 0; b < kBlocks; ++b) step.kv.edits.push_back({0, b, b});
  step.tokens = tokens_;
  step.parts.push_back({0, kRows, 0, 0});
  executor.run(step);
  const std::size_t width = executor.feature_bytes() / sizeof(float);
  for (const std::vector<std::int32_t>& rows :
       {std::vector<std::int32_t>{0, 1, 2}, {39}, {5, 6, 9, 10, 11, 2}}) {
    std::vector<float> read(rows.size() * width);
    executor.read_features(rows, std::as_writable_bytes(std::span(read)));
    for (std::size_t i = 0; i < rows.size(); ++i)
      EXPECT_EQ(std::memcmp(read.data() + i * width, whole.features.data() + rows[i] * width,
                            executor.feature_bytes()),
                0)
          << "row " << rows[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Features, testing::ValuesIn(kernels::test::backends()),
                         [](const auto& backend) { return backend.param; });

}  // namespace
}  // namespace paceline
