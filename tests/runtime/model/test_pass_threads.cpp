// A pass gives the same bits whatever the number of threads, and however they divide it.
#include <gtest/gtest.h>

#include <random>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/model/decoder.hpp"
#include "runtime/model/families/families.hpp"
#include "tests/kernels/test_backends.hpp"
#include "tests/runtime/model/load_weights.hpp"
#include "tests/runtime/model/parity_fixtures.hpp"

namespace paceline {
namespace {

constexpr int kBlocks = 8;  // of a request
constexpr int kBlock = 16;
constexpr int kMostRows = 12;  // of a request in a pass

/// All logits of some passes of prefill, decoding and trees, and the cache after them.
struct Outcome {
  std::vector<float> logits;
  std::vector<std::byte> cache;
};

Outcome run(const std::filesystem::path& folder, const std::string& isa, int threads, DType compute,
            int requests) {
  const ModelConfig config = io::load_model_config(model::families(), folder);
  const io::Checkpoint weights(folder);
  fabric::SingleRankGroup group;
  const auto backend = kernels::make_cpu_backend(threads, isa);
  model::Decoder decoder(*backend, model::load_weights(*backend, config, weights, group, compute),
                         group, requests * kMostRows, requests * kMostRows, kBlocks * kBlock);
  const kernels::KvShape kv = decoder.kv_shape(kBlock);
  const auto cache = backend->allocate(kv.block_bytes() * requests * kBlocks);

  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(requests) * kBlocks);
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::int32_t>(i);
  std::shuffle(blocks.begin(), blocks.end(), random);
  const std::int32_t tree[6] = {-1, 0, 1, 0, 3, 3};
  std::vector<int> length(requests, 0);
  Outcome outcome;
  for (int pass = 0; pass < 12; ++pass) {
    std::vector<TokenId> tokens;
    std::vector<kernels::Segment> segments;
    std::vector<std::int32_t> logit_rows;
    for (int r = 0; r < requests; ++r) {
      if (below(4) == 0) continue;
      const bool is_tree = below(3) == 0;
      const int rows = is_tree ? 6 : below(2) == 0 ? 1 : 1 + below(kMostRows);
      if (length[r] + rows > kBlocks * kBlock) continue;
      segments.push_back({static_cast<int>(tokens.size()), rows, length[r], &blocks[r * kBlocks],
                          is_tree ? tree : nullptr});
      for (int row = 0; row < rows; ++row) {
        if (is_tree || row == rows - 1)
          logit_rows.push_back(static_cast<std::int32_t>(tokens.size()));
        tokens.push_back(below(config.vocab));
      }
      length[r] += is_tree ? 1 : rows;
    }
    if (tokens.empty()) continue;
    const float* logits = decoder.forward(tokens, segments, logit_rows, kv, cache->data());
    outcome.logits.insert(outcome.logits.end(), logits, logits + logit_rows.size() * config.vocab);
  }
  outcome.cache.assign(cache->data(), cache->data() + cache->size());
  return outcome;
}

TEST(PassThreads, AnyNumberGivesTheSameBits) {
  for (const std::filesystem::path& folder : test::parity_fixtures()) {
    for (const std::string& isa : kernels::supported_cpu_isas()) {
      for (const DType compute : {DType::bf16, DType::f32}) {
        const Outcome expected = run(folder, isa, 1, compute, 5);
        ASSERT_GT(expected.logits.size(), 0U);
        for (const int threads : {2, 3, 5}) {
          const Outcome outcome = run(folder, isa, threads, compute, 5);
          EXPECT_TRUE(outcome.logits == expected.logits && outcome.cache == expected.cache)
              << folder << ", " << isa << ", " << threads << " threads";
        }
      }
    }
  }
}

// Of a model of which threads share the operations, and take rows apart where there are many.
TEST(PassThreads, TheSameBitsOfALargerModel) {
  const std::filesystem::path folder = test::source_tree() / "configs/models/target";
  for (const int requests : {5, 12, 40}) {
    const Outcome expected = run(folder, "auto", 1, DType::bf16, requests);
    ASSERT_GT(expected.logits.size(), 0U);
    for (const int threads : {2, 3}) {
      const Outcome outcome = run(folder, "auto", threads, DType::bf16, requests);
      EXPECT_TRUE(outcome.logits == expected.logits && outcome.cache == expected.cache)
          << requests << " requests, " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace paceline
