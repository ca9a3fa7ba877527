// Weights that several processes pack into memory that all of them map: here several loads, one
// after another.
#include "runtime/model/weights.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "runtime/core/error.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/model/decoder.hpp"
#include "runtime/model/families/families.hpp"
#include "tests/runtime/model/load_weights.hpp"
#include "tests/runtime/model/random_model.hpp"

namespace paceline::model {
namespace {

constexpr int kTokens = 9;

ModelConfig config_of(const Family& family, bool tied) {
  ModelConfig config;
  config.family = &family;
  config.vocab = 130;
  config.hidden = 40;
  config.intermediate = 56;
  config.layers = 3;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.max_position = 32;
  config.norm_epsilon = 1e-5F;
  config.tied_embeddings = tied;
  config.attention_bias = &family == &model::qwen2;
  config.qk_norm = &family == &model::qwen3;
  test::add_experts(config);
  return config;
}

struct SharedLoad {
  SharedLoad(kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
             const Shard& shard, DType compute, int parts)
      : memory(backend.allocate(packed_bytes(backend, config, shard, compute))) {
    for (int part = 0; part < parts; ++part)
      weights.push_back(std::make_shared<const Weights>(
          backend, config, source, shard, compute,
          SharedPacking{{memory->data(), memory->size()}, part, parts}));
  }
  std::unique_ptr<kernels::Buffer> memory;
  std::vector<std::shared_ptr<const Weights>> weights;  ///< [parts]
};

std::vector<float> logits_of(kernels::Backend& backend, std::shared_ptr<const Weights> weights) {
  fabric::SingleRankGroup group;
  const int vocab = weights->config().vocab;
  Decoder decoder(backend, std::move(weights), group, kTokens, kTokens, kTokens);
  const kernels::KvShape kv = decoder.kv_shape(16);
  const auto cache = backend.allocate(kv.block_bytes());
  const std::int32_t block = 0;
  std::vector<TokenId> tokens(kTokens);
  for (int i = 0; i < kTokens; ++i) tokens[i] = i * 29 % vocab;
  std::vector<std::int32_t> rows(kTokens);
  std::iota(rows.begin(), rows.end(), 0);
  const kernels::Segment segment{0, kTokens, 0, &block};
  const float* logits = decoder.forward(tokens, {&segment, 1}, rows, kv, cache->data());
  return {logits, logits + static_cast<std::ptrdiff_t>(kTokens) * vocab};
}

TEST(Weights, LoadedInPartsGiveTheSameBits) {
  const auto backend = kernels::make_cpu_backend(2);
  fabric::SingleRankGroup alone;
  for (const bool tied : {false, true}) {
    const ModelConfig config = config_of(model::qwen2, tied);
    const test::RandomModel source(config);
    const auto whole = load_weights(*backend, config, source, alone, DType::bf16);
    WeightLoading loading(*backend, config, source, shard_of(config, 0, 1), DType::bf16);
    std::shared_ptr<const Weights> parts;
    int calls = 0;
    while (parts == nullptr) {
      parts = loading.next();
      ++calls;
      if (calls % 2 == 1) (void)logits_of(*backend, whole);  // other work comes between
    }
    EXPECT_EQ(calls, config.layers + 1);
    EXPECT_EQ(parts->bytes(), whole->bytes());
    EXPECT_EQ(logits_of(*backend, parts), logits_of(*backend, whole));
  }
}

TEST(Weights, ThatAreSharedGiveTheSameBits) {
  const auto backend = kernels::make_cpu_backend(2);
  fabric::SingleRankGroup alone;
  for (const Family* family : {&model::llama, &model::qwen2, &model::qwen3, &model::qwen2_moe,
                               &model::qwen3_moe, &model::mixtral}) {
    for (const DType compute : {DType::bf16, DType::f32}) {
      ModelConfig config = config_of(*family, family != &model::llama);
      if (config.experts) config.experts->wide_router = true;
      const test::RandomModel source(config);
      const auto own = load_weights(*backend, config, source, alone, compute);
      const std::vector<float> expected = logits_of(*backend, own);
      for (const int parts : {1, 2, 3, 30}) {  // more than there are matrices
        const SharedLoad shared(*backend, config, source, shard_of(config, 0, 1), compute, parts);
        for (const auto& weights : shared.weights) {
          EXPECT_EQ(weights->bytes(), own->bytes());
          EXPECT_EQ(logits_of(*backend, weights), expected) << parts << " parts";
        }
      }
    }
  }
}

// Bits of a router below bf16's count where it is stored in fp32, and where it has none of them it
// is the router of one part.
TEST(Weights, RoutersOfFp32StaySo) {
  const auto backend = kernels::make_cpu_backend(2);
  fabric::SingleRankGroup alone;
  const auto logits = [&](const test::RandomModel& source, bool wide, DType compute) {
    ModelConfig config = config_of(model::qwen3_moe, false);
    config.experts->wide_router = wide;
    return logits_of(*backend, load_weights(*backend, config, source, alone, compute));
  };
  const ModelConfig config = config_of(model::qwen3_moe, false);
  const test::RandomModel source(config);
  test::RandomModel rounded(config);
  for (const LayerDescription& layer : describe(config).layers) {
    const auto* mlp = std::get_if<ExpertMlp>(&layer.mlp);
    if (mlp == nullptr) continue;
    for (float& x : rounded.values(mlp->router.name + ".weight"))
      x = std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0x8000U) & 0xFFFF0000U);
  }
  EXPECT_NE(logits(source, true, DType::bf16), logits(rounded, true, DType::bf16));
  EXPECT_EQ(logits(rounded, true, DType::bf16), logits(rounded, false, DType::bf16));
  EXPECT_EQ(logits(source, true, DType::f32), logits(source, false, DType::f32));
}

// Two halves have what each rank has whole twice.
TEST(Weights, WhatEachRankHasWholeIsCountedAsItIsPacked) {
  for (const Family* family : {&model::qwen3, &model::qwen2_moe, &model::qwen3_moe}) {
    for (const bool wide : {false, true}) {
      ModelConfig config = config_of(*family, false);
      if (config.experts) config.experts->wide_router = wide;
      EXPECT_EQ(whole_weight_bytes(config, DType::bf16),
                2 * weight_bytes(config, DType::bf16, 2) - weight_bytes(config, DType::bf16, 1))
          << family->model_type << (wide ? ", routers in fp32" : "");
    }
  }
}

// Each process reads a piece of the files, and no two the same one.
TEST(Weights, EachMatrixIsPackedByOne) {
  const auto backend = kernels::make_cpu_backend(1);
  for (const auto& [family, tp] : {std::pair{&model::qwen2, 1},
                                   {&model::qwen2, 2},
                                   {&model::qwen2_moe, 1},
                                   {&model::qwen2_moe, 2}}) {
    const ModelConfig config = config_of(*family, false);
    const test::RandomModel source(config);
    const Shard shard = shard_of(config, tp - 1, tp);
    const std::size_t bytes = packed_bytes(*backend, config, shard, DType::f32);
    constexpr int kParts = 3;
    std::vector<int> packed(bytes, 0);
    for (int part = 0; part < kParts; ++part) {
      const auto memory = backend->allocate(bytes);
      const Weights weights(*backend, config, source, shard, DType::f32,
                            {{memory->data(), bytes}, part, kParts});
      std::size_t own = 0;
      for (std::size_t i = 0; i < bytes; ++i) {
        if (memory->data()[i] == std::byte()) continue;
        ++packed[i];
        ++own;
      }
      EXPECT_GT(own, bytes / 10) << "part " << part;
    }
    EXPECT_LE(*std::max_element(packed.begin(), packed.end()), 1);
  }
}

// Whoever packs a matrix answers for it, and for as much of the embeddings as its head has rows.
TEST(Weights, OneProcessComplainsOfABadOne) {
  const auto backend = kernels::make_cpu_backend(1);
  const ModelConfig config = config_of(model::llama, false);
  test::RandomModel source(config);
  const Shard shard = shard_of(config, 0, 1);
  const std::size_t bytes = packed_bytes(*backend, config, shard, DType::bf16);
  for (const char* name :
       {"model.embed_tokens.weight", "lm_head.weight", "model.layers.0.self_attn.k_proj.weight",
        "model.layers.2.mlp.down_proj.weight"}) {
    float& value = source.values(name)[3];
    const float before = std::exchange(value, std::numeric_limits<float>::infinity());
    std::vector<std::string> said;
    for (int part = 0; part < 3; ++part) {
      const auto memory = backend->allocate(bytes);
      try {
        const Weights weights(*backend, config, source, shard, DType::bf16,
                              {{memory->data(), bytes}, part, 3});
      } catch (const DataError& error) {
        said.emplace_back(error.what());
      }
    }
    ASSERT_EQ(said.size(), 1U) << name;
    EXPECT_NE(said[0].find(name), std::string::npos) << said[0];
    value = before;
  }
}

TEST(Weights, MemoryThatIsTooSmallIsRefused) {
  const auto backend = kernels::make_cpu_backend(1);
  const ModelConfig config = config_of(model::llama, true);
  const test::RandomModel source(config);
  const Shard shard = shard_of(config, 0, 1);
  const std::size_t bytes = packed_bytes(*backend, config, shard, DType::bf16);
  const auto memory = backend->allocate(bytes);
  EXPECT_THROW(const Weights weights(*backend, config, source, shard, DType::bf16,
                                     {{memory->data(), bytes - 64}}),
               Error);
}

}  // namespace
}  // namespace paceline::model
