// The decoder against transformers, on the small random checkpoints of tests/models/parity.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/model/families/families.hpp"
#include "tests/kernels/test_backends.hpp"
#include "tests/runtime/model/answers.hpp"
#include "tests/runtime/model/load_weights.hpp"
#include "tests/runtime/model/parity_fixtures.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;
struct Case {
  fs::path fixture;
  std::string backend;
};

std::vector<Case> cases() {
  std::vector<Case> made;
  for (const fs::path& fixture : test::parity_fixtures()) {
    for (const std::string& name : kernels::test::backends()) made.push_back({fixture, name});
  }
  return made;
}

class Parity : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const fs::path& folder = GetParam().fixture;
    std::ifstream(folder / "reference.json") >> reference_;
    config_ = io::load_model_config(model::families(), folder);
    const std::string backend = GetParam().backend == "cuda" ? "cuda" : "cpu";
    if (const std::string why = kernels::unsupported(backend, config_); !why.empty())
      GTEST_SKIP() << why;
    weights_ = std::make_unique<io::Checkpoint>(folder);
    io::check_tensor_shapes(config_, *weights_);
    if (io::has_own_head(config_, *weights_)) config_.tied_embeddings = false;
    if (config_.experts) config_.experts->wide_router = io::stores_wide_router(config_, *weights_);
    answers_ = std::make_unique<test::Answers>(folder / "reference.safetensors");
    backend_ = kernels::test::backend_named(GetParam().backend);
  }

  [[nodiscard]] std::shared_ptr<const model::Weights> load(DType compute) {
    return model::load_weights(*backend_, config_, *weights_, group_, compute);
  }
  [[nodiscard]] const float* answer(const std::string& name) const { return answers_->find(name); }

  // Largest and root-mean-square error of all kept logits.
  std::pair<double, double> logit_errors(DType compute) {
    double largest = 0;
    double squares = 0;
    std::size_t count = 0;
    for (std::size_t i = 0; i < reference_["prompts"].size(); ++i) {
      const auto tokens = reference_["prompts"][i]["tokens"].get<std::vector<TokenId>>();
      const auto positions = reference_["prompts"][i]["positions"].get<std::vector<std::int32_t>>();
      model::Decoder decoder(*backend_, load(compute), group_, static_cast<int>(tokens.size()),
                             static_cast<int>(positions.size()), 512);
      const kernels::KvShape kv = decoder.kv_shape(16);
      const auto cache = backend_->allocate(kv.block_bytes() * 32);
      std::vector<std::int32_t> blocks;
      for (int b = 0; b < 32; ++b) blocks.push_back(31 - b);
      const kernels::Segment segment{0, static_cast<int>(tokens.size()), 0, blocks.data()};
      std::vector<float> logits(positions.size() * config_.vocab);
      backend_->read(reinterpret_cast<const std::byte*>(
                         decoder.forward(tokens, {&segment, 1}, positions, kv, cache->data())),
                     std::as_writable_bytes(std::span(logits)));
      const float* expected = answer("logits." + std::to_string(i));
      for (std::size_t j = 0; j < positions.size() * config_.vocab; ++j) {
        const double error = std::abs(static_cast<double>(logits[j]) - expected[j]);
        largest = std::isnan(error) ? INFINITY : std::max(largest, error);
        squares += error * error;
        ++count;
      }
    }
    return {largest, std::sqrt(squares / static_cast<double>(count))};
  }

  nlohmann::json reference_;
  ModelConfig config_;
  std::unique_ptr<io::Checkpoint> weights_;
  std::unique_ptr<test::Answers> answers_;
  std::shared_ptr<kernels::Backend> backend_;
  fabric::SingleRankGroup group_;
};

TEST_P(Parity, Fp32LogitsWithin2e4OfTheirSpread) {
  const double scale = reference_["logit_std"].get<double>();
  const auto [largest, rms] = logit_errors(DType::f32);
  RecordProperty("relative", std::to_string(largest / scale));
  EXPECT_LT(largest / scale, 2e-4) << "rms " << rms / scale;
}

// A bf16 backend may err as transformers' own bf16 run does, within a small factor. A row whose
// experts are nearly alike may get others than there, which moves its logits far.
TEST_P(Parity, Bf16LogitsAsCloseAsTransformersOwn) {
  const auto [largest, rms] = logit_errors(DType::bf16);
  if (config_.experts) {
    EXPECT_LT(rms, 4 * reference_["bf16_rms_error"].get<double>());
    return;
  }
  EXPECT_LT(rms, 1.5 * reference_["bf16_rms_error"].get<double>());
  EXPECT_LT(largest, 2.5 * reference_["bf16_max_error"].get<double>());
}

TEST_P(Parity, Greedy64TokensAndLogProbabilities) {
  SamplingParams sampling;
  sampling.temperature = reference_["temperature"].get<float>();
  sampling.top_k = 1;  // greedy, with log-probabilities at the temperature
  sampling.max_tokens = 64;
  // Rows of padding are no tokens: none of them may be sampled, however likely they are.
  std::vector<TokenId> padding;
  for (TokenId id = reference_.value("tokens", config_.vocab); id < config_.vocab; ++id)
    padding.push_back(id);
  sampling.min_tokens = padding.empty() ? 0 : 64;
  const engine::ExecutorLimits limits{
      .max_batch = 3, .prefill_chunk = 64, .kv_block = 16, .kv_blocks = 64, .max_position = 512};
  engine::Executor executor(*backend_, load(DType::f32), group_, sampling, padding, limits);
  engine::Batcher batcher(
      {.max_batch = 3, .prefill_chunk = 64, .kv_block = 16, .kv_blocks = 64, .context = 512},
      sampling, padding, nullptr);
  for (std::uint32_t i = 0; i < reference_["prompts"].size(); ++i) {
    Admission request;
    request.trajectory.id = {i, 0};
    request.prompt = reference_["prompts"][i]["tokens"].get<std::vector<TokenId>>();
    ASSERT_TRUE(batcher.admit(request));
  }
  std::size_t finished = 0;
  const double tolerance = config_.experts ? 1e-4 : 1e-3;
  double largest = 0;
  while (batcher.active() > 0) {
    for (const Trajectory& t : batcher.commit(executor.run(batcher.plan()))) {
      const std::uint32_t i = t.id.prompt;
      EXPECT_EQ(t.tokens, reference_["prompts"][i]["greedy"].get<std::vector<TokenId>>())
          << "prompt " << i;
      const float* expected = answer("greedy_logprob." + std::to_string(i));
      for (std::size_t j = 0; j < t.logprob.size(); ++j) {
        EXPECT_NEAR(t.logprob[j], expected[j], tolerance) << "prompt " << i << " token " << j;
        largest = std::max(largest, std::abs(static_cast<double>(t.logprob[j]) - expected[j]));
        EXPECT_EQ(t.sampling_logprob[j], 0.0F);
      }
      ++finished;
    }
  }
  EXPECT_EQ(finished, reference_["prompts"].size());
  RecordProperty("logprob", std::to_string(largest));
}

TEST_P(Parity, ExpertsOfPrompts) {
  if (!config_.experts) GTEST_SKIP() << "a dense model";
  for (std::size_t i = 0; i < reference_["prompts"].size(); ++i) {
    const auto tokens = reference_["prompts"][i]["tokens"].get<std::vector<TokenId>>();
    const auto rows = static_cast<int>(tokens.size());
    model::Decoder decoder(*backend_, load(DType::f32), group_, rows, 1, 512);
    const kernels::KvShape kv = decoder.kv_shape(16, true);
    const auto cache = backend_->allocate(kv.block_bytes() * 32);
    std::vector<std::int32_t> blocks(32);
    std::iota(blocks.begin(), blocks.end(), 0);
    const kernels::Segment segment{0, rows, 0, blocks.data()};
    const std::int32_t last = rows - 1;
    (void)decoder.forward(tokens, {&segment, 1}, {&last, 1}, kv, cache->data());
    const int width = config_.routing_width();
    const int chosen = config_.experts->chosen;
    std::vector<std::int16_t> experts(std::size_t{32} * kv.block * width);
    for (int block = 0; block < 32; ++block) {
      const std::size_t of_block = std::size_t{1} * kv.block * width;
      backend_->read(
          cache->data() + block * kv.block_bytes() + kv.routing_offset(),
          std::as_writable_bytes(std::span(experts).subspan(block * of_block, of_block)));
    }
    const float* expected = answer("routing." + std::to_string(i));  // [layers, rows, chosen]
    for (int layer = 0; layer < width / chosen; ++layer) {
      for (int row = 0; row < rows; ++row) {
        for (int k = 0; k < chosen; ++k) {
          ASSERT_EQ(experts[row * width + layer * chosen + k],
                    expected[(layer * rows + row) * chosen + k])
              << "prompt " << i << " token " << row << " layer " << layer;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Parity, testing::ValuesIn(cases()), [](const auto& made) {
  std::string name = made.param.fixture.filename().string() + "_" + made.param.backend;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace paceline
