#include <gtest/gtest.h>

#include <cmath>

#include "runtime/core/error.hpp"
#include "runtime/model/rope.hpp"
#include "runtime/model/sharding.hpp"

namespace paceline::model {
namespace {

TEST(Rope, AnglesOfThePlainEmbedding) {
  ModelConfig config;
  config.head_dim = 8;
  const std::vector<float> table = rope_table(config, 100);
  for (const int position : {0, 1, 99}) {
    for (int i = 0; i < 4; ++i) {
      const double angle = position * std::pow(10000.0, -2.0 * i / 8);
      EXPECT_NEAR(table[position * 8 + i], std::cos(angle), 1e-5);
      EXPECT_NEAR(table[position * 8 + 4 + i], std::sin(angle), 1e-5);
    }
  }
}

TEST(Rope, Llama3StretchesOnlyLongWavelengths) {
  ModelConfig plain;
  plain.head_dim = 128;
  plain.rope_theta = 500000;
  ModelConfig scaled = plain;
  scaled.rope_scaling = Llama3RopeScaling{};
  const std::vector<float> a = rope_table(plain, 2);
  const std::vector<float> b = rope_table(scaled, 2);
  EXPECT_EQ(a[128 + 64], b[128 + 64]);                   // the fastest is kept
  EXPECT_NEAR(a[128 + 127] / b[128 + 127], 8.0F, 1e-3);  // the slowest is stretched by the factor
}

TEST(Shard, CoversEverythingOnce) {
  ModelConfig config;
  config.heads = 28;
  config.kv_heads = 4;
  config.head_dim = 128;
  config.intermediate = 18944;
  config.vocab = 333;
  std::int32_t heads = 0;
  std::int32_t vocab = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const Shard shard = shard_of(config, rank, 4);
    EXPECT_EQ(shard.first_head, heads);
    EXPECT_EQ(shard.first_vocab[rank], vocab);
    EXPECT_EQ(shard.first_vocab[rank] % 64, 0);
    EXPECT_EQ(shard.segments, 1);
    heads += shard.heads;
    vocab += shard.vocab();
  }
  EXPECT_EQ(heads, 28);
  EXPECT_EQ(vocab, 333);
  EXPECT_THROW((void)shard_of(config, 0, 3), UsageError);
  EXPECT_THROW((void)shard_of(config, 0, 8), UsageError);
}

}  // namespace
}  // namespace paceline::model
