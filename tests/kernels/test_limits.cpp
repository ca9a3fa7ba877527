// What is said of models that a backend cannot compute.
#include <gtest/gtest.h>

#include "kernels/backend.hpp"
#include "kernels/gpus.hpp"

namespace paceline::kernels {
namespace {

ModelConfig supported_by_all() {
  ModelConfig config;
  config.hidden = 64;
  config.intermediate = 96;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 40;
  return config;
}

TEST(Limits, SayKeyFoundAndExpected) {
  ModelConfig config = supported_by_all();
  for (const char* backend : {"cpu", "cuda"}) {
    EXPECT_EQ(unsupported(backend, config), "");
    for (const int head_dim : {100, 320, 4, 257}) {
      config.head_dim = head_dim;
      EXPECT_EQ(unsupported(backend, config),
                "head_dim (or hidden_size / num_attention_heads): expected a multiple of 8 up to "
                "256, found " +
                    std::to_string(head_dim));
    }
    config = supported_by_all();
  }
  config.hidden = 65;
  config.intermediate = 97;
  EXPECT_EQ(unsupported("cpu", config), "");
  EXPECT_EQ(unsupported("cuda", config),
            "hidden_size: expected an even number up to 32768 on a GPU, found 65 (engine.backend: "
            "cpu takes any)");
  config.hidden = 64;
  EXPECT_EQ(unsupported("cuda", config),
            "intermediate_size: expected an even number on a GPU, found 97 (engine.backend: cpu "
            "takes any)");
  config = supported_by_all();
  config.vision.emplace().tower.emplace().intermediate = 97;
  EXPECT_EQ(unsupported("cpu", config), "");
  EXPECT_EQ(
      unsupported("cuda", config),
      "vision_config: expected an even intermediate size and an even number of values a patch "
      "on a GPU, found 97 and 1176 (engine.backend: cpu takes any)");
  config.vision->tower->intermediate = 96;
  config.vision->tower->patch = 7;
  config.vision->tower->temporal_patch = 1;
  EXPECT_EQ(unsupported("cpu", config), "");
  EXPECT_EQ(
      unsupported("cuda", config),
      "vision_config: expected an even intermediate size and an even number of values a patch "
      "on a GPU, found 96 and 147 (engine.backend: cpu takes any)");
  config = supported_by_all();
  config.hidden = 40000;
  EXPECT_EQ(unsupported("cpu", config), "");
  EXPECT_NE(unsupported("cuda", config), "");
  config = supported_by_all();
  config.heads = 130;
  EXPECT_EQ(unsupported("cpu", config), "");
  EXPECT_EQ(unsupported("cuda", config),
            "num_attention_heads: expected at most 64 to a kv head on a GPU, found 65 "
            "(engine.backend: cpu takes any)");
  config = supported_by_all();
  config.latent = LatentConfig{.kv_rank = 512, .rope = 64, .value_dim = 128};
  config.head_dim = 128;
  for (const char* backend : {"cpu", "cuda"}) EXPECT_EQ(unsupported(backend, config), "");
  config.latent->q_rank = 1535;
  EXPECT_EQ(unsupported("cpu", config), "");
  EXPECT_EQ(unsupported("cuda", config),
            "q_lora_rank: expected an even number up to 32768 on a GPU, found 1535 "
            "(engine.backend: cpu takes any)");
  config.latent->q_rank = 0;
  config.latent->rope = 72;
  EXPECT_EQ(unsupported("cpu", config),
            "qk_rope_head_dim: expected a multiple of 8 up to 64, found 72");
  config.latent->kv_rank = 500;
  EXPECT_EQ(unsupported("cpu", config),
            "kv_lora_rank: expected a multiple of 8 up to 512, found 500");
  config = supported_by_all();
  config.experts = ExpertConfig{.routed = 512, .chosen = 2, .width = 32, .dense_layers = {}};
  EXPECT_EQ(unsupported("cpu", config), "");
  EXPECT_EQ(unsupported("cuda", config), "");
  config.experts->routed = 513;
  EXPECT_EQ(unsupported("cpu", config), "");
  EXPECT_EQ(unsupported("cuda", config),
            "experts: expected at most 512 a layer on a GPU, found 513 (engine.backend: cpu takes "
            "any)");
  config.experts->routed = 8;
  config.experts->shared_width = 33;
  EXPECT_EQ(unsupported("cpu", config), "");
  EXPECT_EQ(unsupported("cuda", config),
            "moe_intermediate_size: expected an even number on a GPU, found 32 and 33 "
            "(engine.backend: cpu takes any)");
}

TEST(Limits, SayWhatADeviceLacks) {
  EXPECT_EQ(unusable_gpu(8, 0, 163 * 1024), "");
  EXPECT_EQ(unusable_gpu(8, 9, 99 * 1024), "");
  EXPECT_EQ(unusable_gpu(9, 0, 227 * 1024), "");
  EXPECT_EQ(unusable_gpu(12, 0, 99 * 1024), "");
  EXPECT_EQ(unusable_gpu(7, 5, 64 * 1024),
            "compute capability 7.5, expected 8.0 or later (Ampere, Ada, Hopper, Blackwell)");
  EXPECT_EQ(unusable_gpu(13, 0, 64 * 1024),
            "64 KB of shared memory a block, expected 99 KB or more");
}

}  // namespace
}  // namespace paceline::kernels
