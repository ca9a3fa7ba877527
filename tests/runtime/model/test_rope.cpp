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

// Frequencies as transformers 5.24 computes them, of pairs that are kept, blended and divided.
TEST(Rope, ScalingsAreThoseOfTransformers) {
  struct Pair {
    int index;
    double frequency;
  };
  struct Case {
    int head_dim;
    double theta;
    RopeScaling scaling;
    double attention;  ///< that cos and sin are multiplied by
    std::vector<Pair> pairs;
  };
  const Case cases[] = {{128,
                         1e6,
                         YarnRopeScaling{4, 1.138629436111989, 32, 1, 32768, true},
                         1.138629436111989,
                         {{0, 1.0},
                          {1, 0.8058422207832336},
                          {21, 0.010746078565716743},
                          {32, 0.0006029411451891065},
                          {40, 4.4456985051510856e-05},
                          {48, 7.905693564680405e-06},
                          {63, 3.102344408034696e-07}}},
                        {64,
                         150000,
                         YarnRopeScaling{32, 1.3465735902799727, 32, 1, 4096, false},
                         1.3465735902799727,
                         {{0, 1.0},
                          {8, 0.05081327259540558},
                          {10, 0.019334999844431877},
                          {16, 0.0004564839182421565},
                          {20, 1.818833698052913e-05},
                          {31, 3.023511396804679e-07}}},
                        {64,
                         10000,
                         YarnRopeScaling{40, 1.1557219901962608, 32, 1, 4096, true},
                         1.1557219901962608,
                         {{1, 0.7498942017555237},
                          {10, 0.05623412877321243},
                          {16, 0.005500000435858965},
                          {20, 0.0007905694073997438},
                          {24, 2.499999936844688e-05},
                          {31, 3.3338035336782923e-06}}},
                        {128,
                         10000,
                         LinearRopeScaling{4},
                         1.0,
                         {{0, 0.25},
                          {1, 0.21649108827114105},
                          {32, 0.0024999999441206455},
                          {63, 2.8869548259535804e-05}}},
                        {128,
                         10000,
                         DynamicRopeScaling{4},
                         1.0,
                         {{0, 1.0},
                          {1, 0.8659643530845642},
                          {32, 0.009999999776482582},
                          {63, 0.00011547819303814322}}}};
  for (const Case& of : cases) {
    ModelConfig config;
    config.head_dim = of.head_dim;
    config.rope_theta = of.theta;
    config.rope_scaling = of.scaling;
    const std::vector<float> table = rope_table(config, 2);
    const float* row = table.data() + of.head_dim;  // position 1: angles are frequencies
    for (const Pair& pair : of.pairs) {
      const double cosine = row[pair.index];
      const double sine = row[of.head_dim / 2 + pair.index];
      EXPECT_NEAR(std::atan2(sine, cosine) / pair.frequency, 1, 4e-7) << pair.index;
      EXPECT_NEAR(std::hypot(sine, cosine), of.attention, 2e-7) << pair.index;
    }
  }
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
    EXPECT_EQ(shard.range(Cut::even, config.heads).first, heads);
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
