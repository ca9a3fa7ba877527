// Sizes of models from config.json: the simulated ones against what their papers and cards say.
#include <gtest/gtest.h>

#include <string>

#include "io/checkpoint/model_shape_reader.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::test {
namespace {

ModelShape simulated(const std::string& name) {
  return io::load_model_shape(PACELINE_SOURCE_DIR "/configs/simulated/models/" + name);
}

struct Published {
  const char* name;
  double kv_bytes;  ///< a position
  double weights;   ///< bytes
};

TEST(ModelShape, SimulatedModelsAreAsLargeAsPublished) {
  for (const Published& p :
       {Published{"Qwen2.5-0.5B", 12288, 0.988e9}, Published{"Qwen2.5-1.5B", 28672, 3.09e9},
        Published{"Qwen2.5-7B", 57344, 15.2e9}, Published{"Qwen2.5-32B", 262144, 65.5e9},
        Published{"Qwen2-VL-72B", 327680, 145.4e9}, Published{"Llama-3.1-8B", 131072, 16.06e9},
        Published{"Moonlight-16B-A3B", 31104, 32e9}, Published{"Kimi-K2", 70272, 1.03e12}}) {
    const ModelShape shape = simulated(p.name);
    EXPECT_EQ(shape.name, p.name);
    EXPECT_DOUBLE_EQ(shape.kv_bytes_per_position(), p.kv_bytes) << p.name;
    EXPECT_NEAR(shape.weight_bytes() / p.weights, 1, 0.005) << p.name;
  }
}

TEST(ModelShape, ExpertsThatARowUses) {
  const ModelShape kimi = simulated("Kimi-K2");
  EXPECT_NEAR(kimi.active_parameters() / 32e9, 1, 0.02);
  EXPECT_EQ(kimi.context, 131072);
  EXPECT_EQ(kimi.dense_layers(), 1);
  EXPECT_EQ(kimi.experts->chosen, 8);
  EXPECT_EQ(kimi.latent->q_rank, 1536);
  const ModelShape moonlight = simulated("Moonlight-16B-A3B");
  EXPECT_EQ(moonlight.latent->q_rank, 0);
  // "3B" with embeddings: 2.24 without embeddings and head.
  EXPECT_NEAR((moonlight.active_parameters() - 2048.0 * 163840) / 2.24e9, 1, 0.01);
}

std::string qwen3_moe(const std::string& more) {
  return R"({"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 151936, "hidden_size": 2048,
             "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32,
             "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
             "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1,
             "mlp_only_layers": [], "torch_dtype": "bfloat16")" +
         more + "}";
}

TEST(ModelShape, NameWhatTransformersCallsThem) {
  EXPECT_EQ(simulated("Qwen2.5-7B").family, "qwen2");
  EXPECT_EQ(simulated("Kimi-K2").family, "deepseek_v3");
}

TEST(ModelShape, MostBytesOfManyExpertsAreTheirs) {
  EXPECT_EQ(simulated("Qwen2.5-7B").expert_bytes(), 0);
  const ModelShape kimi = simulated("Kimi-K2");  // 384 of 2,048 x 7,168 in 60 layers, fp8
  EXPECT_DOUBLE_EQ(kimi.expert_bytes(), 60.0 * 384 * 3 * 2048 * 7168);
  EXPECT_LT(kimi.expert_bytes(), kimi.weight_bytes());
}

TEST(ModelShape, Qwen3Moe) {
  const ModelShape shape = io::parse_model_shape(qwen3_moe(""), "c.json", "Qwen3-30B-A3B");
  EXPECT_EQ(shape.dense_layers(), 0);
  EXPECT_EQ(shape.head_dim, 128);
  EXPECT_NEAR(shape.parameters() / 30.5e9, 1, 0.005);
  EXPECT_NEAR(shape.active_parameters() / 3.0e9, 1, 0.05);
  EXPECT_DOUBLE_EQ(shape.kv_bytes_per_position(), 2.0 * 48 * 2 * 4 * 128);
}

TEST(ModelShape, LayerByHand) {
  // 8 x (2 x 4 + 2 x 2) x 3 of attention, 3 x 8 x 5 of the MLP.
  const std::string text = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 10,
      "hidden_size": 8, "intermediate_size": 5, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 3, "tie_word_embeddings": true})";
  const ModelShape shape = io::parse_model_shape(text, "c.json", "tiny");
  EXPECT_DOUBLE_EQ(shape.attention_parameters(), 288);
  EXPECT_DOUBLE_EQ(shape.dense_layer_parameters(), 408);
  EXPECT_DOUBLE_EQ(shape.parameters(), 2 * 408 + 80);
  EXPECT_DOUBLE_EQ(shape.active_parameters(), 2 * 408 + 80);
  EXPECT_DOUBLE_EQ(shape.bytes_per_parameter, 4);  // transformers' default
  EXPECT_DOUBLE_EQ(shape.kv_bytes_per_position(), 2.0 * 2 * 2 * 2 * 3);
}

TEST(ModelShape, AHeadHasItsOwnVocabulary) {
  const ModelShape shape = io::parse_model_shape(
      R"({"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": 1000, "draft_vocab_size": 300,
          "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
          "num_attention_heads": 4})",
      "c.json", "head");
  EXPECT_EQ(shape.vocab, 300);
  EXPECT_EQ(shape.layers, 1);
}

TEST(ModelShape, ErrorsNameFileAndKey) {
  const auto message = [](const std::string& text) {
    return message_of<DataError>([&] { (void)io::parse_model_shape(text, "c.json", "x"); });
  };
  EXPECT_EQ(message("[]"), "c.json: expected an object, found []");
  EXPECT_EQ(message("{}"), "c.json: missing keys: architectures");
  EXPECT_EQ(
      message(R"({"architectures": ["Qwen3MoEForCausalLM"]})"),
      "c.json: architectures: expected LlamaForCausalLM, LlamaForCausalLMEagle3, Qwen2ForCausalLM, "
      "Qwen2VLForConditionalGeneration, Qwen3ForCausalLM, Qwen3MoeForCausalLM or "
      "DeepseekV3ForCausalLM, found 'Qwen3MoEForCausalLM'; the nearest is "
      "Qwen3MoeForCausalLM");
  std::string text = qwen3_moe("");
  const std::size_t chosen = text.find("_per_tok\": 8");
  text.replace(chosen, 12, "_per_tok\": 129");
  EXPECT_EQ(message(text),
            "c.json: num_experts_per_tok: expected a whole number from 1 to 128, found 129");
  EXPECT_EQ(message(qwen3_moe(R"(, "quantization_config": {"quant_method": "awq"})")),
            "c.json: quantization_config.quant_method: expected fp8, found 'awq'");
  text = qwen3_moe("");
  text.replace(text.find("sparse_step\": 1"), 15, "sparse_step\": 2");
  EXPECT_EQ(message(text), "c.json: decoder_sparse_step: expected 1, found 2");
}

}  // namespace
}  // namespace paceline::test
