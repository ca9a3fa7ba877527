// Sizes of models from config.json: the simulated ones against what their papers and cards say.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/model/tower.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::test {
namespace {

ModelConfig simulated(const std::string& name) {
  return io::load_model_sizes(model::families(),
                              PACELINE_SOURCE_DIR "/configs/simulated/models/" + name);
}

ModelConfig parse(const std::string& text) {
  return io::parse_model_sizes(model::families(), text, "c.json");
}

double kv_bytes_per_position(const ModelConfig& config) {
  return 2.0 * config.layers * config.kv_width();
}

/// Elements that a row is multiplied by in all layers.
double active_elements(const ModelConfig& config) {
  const ModelDescription model = describe(config);
  const auto experts = static_cast<double>(expert_elements(model));
  return static_cast<double>(layer_elements(model)) -
         experts * (config.experts->routed - config.experts->chosen) / config.experts->routed;
}

struct Published {
  const char* name;
  double kv_bytes;  ///< a position
  double weights;   ///< bytes
};

TEST(ModelSizes, SimulatedModelsAreAsLargeAsPublished) {
  for (const Published& p :
       {Published{"Qwen2.5-0.5B", 12288, 0.988e9}, Published{"Qwen2.5-1.5B", 28672, 3.09e9},
        Published{"Qwen2.5-7B", 57344, 15.2e9}, Published{"Qwen2.5-32B", 262144, 65.5e9},
        Published{"Qwen2-VL-72B", 327680, 145.4e9}, Published{"Llama-3.1-8B", 131072, 16.06e9},
        Published{"Moonlight-16B-A3B", 31104, 32e9}, Published{"Kimi-K2", 70272, 1.03e12},
        Published{"DeepSeek-V3", 70272, 671e9}}) {
    const ModelConfig config = simulated(p.name);
    EXPECT_DOUBLE_EQ(kv_bytes_per_position(config), p.kv_bytes) << p.name;
    EXPECT_NEAR(stored_weight_bytes(config) / p.weights, 1, 0.005) << p.name;
  }
}

TEST(ModelSizes, TheVisionPartIsAsLargeAsPublished) {
  const ModelConfig config = simulated("Qwen2-VL-72B");
  ASSERT_TRUE(config.vision && config.vision->tower);
  // "675M" (Qwen2-VL, section 2.1), of which the merger's second product is wider at 72B's width.
  const auto elements = static_cast<double>(model::tower_weight_bytes(config, DType::bf16)) / 2;
  EXPECT_NEAR(elements / (675e6 + 5120.0 * (8192 - 3584)), 1, 0.02);
  EXPECT_FALSE(simulated("Qwen2.5-32B").vision);
}

TEST(ModelSizes, ExpertsThatARowUses) {
  const ModelConfig kimi = simulated("Kimi-K2");
  EXPECT_EQ(kimi.family, &model::deepseek);
  EXPECT_NEAR((active_elements(kimi) + 7168.0 * 163840) / 32e9, 1, 0.02);
  EXPECT_EQ(kimi.max_position, 131072);
  EXPECT_EQ(kimi.dense_layers(), 1);
  EXPECT_EQ(kimi.experts->chosen, 8);
  EXPECT_EQ(kimi.latent->q_rank, 1536);
  const ModelConfig moonlight = simulated("Moonlight-16B-A3B");
  EXPECT_EQ(moonlight.latent->q_rank, 0);
  // "3B" with embeddings: 2.24 without embeddings and head.
  EXPECT_NEAR(active_elements(moonlight) / 2.24e9, 1, 0.01);
}

TEST(ModelSizes, MostBytesOfManyExpertsAreTheirs) {
  EXPECT_EQ(stored_expert_bytes(simulated("Qwen2.5-7B")), 0);
  const ModelConfig kimi = simulated("Kimi-K2");  // 384 of 2,048 x 7,168 in 60 layers, fp8
  EXPECT_DOUBLE_EQ(stored_expert_bytes(kimi), 60.0 * 384 * 3 * 2048 * 7168);
  EXPECT_LT(stored_expert_bytes(kimi), stored_weight_bytes(kimi));
}

std::string qwen3_moe(const std::string& more, const std::string& dense = "") {
  return R"({"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 151936, "hidden_size": 2048,
             "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32,
             "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
             "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1,
             "torch_dtype": "bfloat16", "mlp_only_layers": [)" +
         dense + "]" + more + "}";
}

TEST(ModelSizes, Qwen3Moe) {
  const ModelConfig config = parse(qwen3_moe(""));
  EXPECT_EQ(config.dense_layers(), 0);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_NEAR(stored_weight_bytes(config) / 2 / 30.5e9, 1, 0.005);
  EXPECT_NEAR((active_elements(config) + 2048.0 * 151936) / 3.0e9, 1, 0.05);
  EXPECT_DOUBLE_EQ(kv_bytes_per_position(config), 2.0 * 48 * 2 * 4 * 128);
}

TEST(ModelSizes, LayersBetweenStepsAreDense) {
  std::string text = qwen3_moe("", "3");
  text.replace(text.find("sparse_step\": 1"), 15, "sparse_step\": 2");
  text.replace(text.find("layers\": 48"), 11, "layers\": 5");
  const ModelConfig config = parse(text);
  EXPECT_EQ(config.experts->dense_layers, (std::vector<std::int32_t>{0, 2, 3, 4}));
}

TEST(ModelSizes, ExpertsByTheKeysOfTheirFamilies) {
  // transformers 5 calls the number of experts otherwise.
  std::string text = qwen3_moe(R"(, "norm_topk_prob": true)");
  text.replace(text.find("\"num_experts\""), 13, "\"num_local_experts\"");
  EXPECT_EQ(parse(text).experts->routed, 128);
  EXPECT_TRUE(parse(text).experts->normalised);
  EXPECT_FALSE(parse(qwen3_moe("")).experts->normalised);

  const ModelConfig mixtral = parse(R"({"architectures": ["MixtralForCausalLM"],
      "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "num_local_experts": 8, "num_experts_per_tok": 2, "torch_dtype": "bfloat16"})");
  EXPECT_EQ(mixtral.experts->width, 14336);
  EXPECT_EQ(mixtral.dense_layers(), 0);
  EXPECT_TRUE(mixtral.experts->normalised);
  EXPECT_EQ(mixtral.segments(), 8);
  EXPECT_NEAR(stored_weight_bytes(mixtral) / 2 / 46.7e9, 1, 0.001);

  const ModelConfig qwen2 = parse(R"({"architectures": ["Qwen2MoeForCausalLM"],
      "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632,
      "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
      "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
      "shared_expert_intermediate_size": 5632, "torch_dtype": "bfloat16"})");
  EXPECT_EQ(qwen2.experts->shared_width, 5632);
  EXPECT_EQ(qwen2.segments(), 4);
  EXPECT_NEAR(stored_weight_bytes(qwen2) / 2 / 14.3e9, 1, 0.002);
  std::map<std::string, std::vector<std::int64_t>> tensors;
  for (const ExpectedTensor& tensor : expected_tensors(describe(qwen2)))
    tensors[tensor.name] = tensor.shape;
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(tensors.at("model.layers.3.mlp.shared_expert_gate.weight"), (Shape{1, 2048}));
  EXPECT_EQ(tensors.at("model.layers.3.mlp.shared_expert.down_proj.weight"), (Shape{2048, 5632}));
}

TEST(ModelSizes, TensorsOfExpertsHaveTheirPublishedNames) {
  ModelConfig config = parse(qwen3_moe("", "1"));
  config.layers = 2;
  std::map<std::string, std::vector<std::int64_t>> tensors;
  for (const ExpectedTensor& tensor : expected_tensors(describe(config)))
    tensors[tensor.name] = tensor.shape;
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(tensors.at("model.layers.0.mlp.gate.weight"), (Shape{128, 2048}));
  EXPECT_EQ(tensors.at("model.layers.0.mlp.experts.127.down_proj.weight"), (Shape{2048, 768}));
  EXPECT_EQ(tensors.at("model.layers.1.mlp.up_proj.weight"), (Shape{6144, 2048}));
  EXPECT_EQ(tensors.count("model.layers.1.mlp.gate.weight"), 0U);
}

TEST(ModelSizes, LayerByHand) {
  // 8 x (2 x 4 + 2 x 2) x 3 of attention, 3 x 8 x 5 of the MLP.
  const ModelConfig config = parse(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 10,
      "hidden_size": 8, "intermediate_size": 5, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 4, "tie_word_embeddings": true})");
  const ModelDescription model = describe(config);
  EXPECT_EQ(matrix_elements(model.layers[0]), 8 * (2 * 4 + 2 * 2) * 4 + 3 * 8 * 5);
  EXPECT_DOUBLE_EQ(stored_weight_bytes(config),
                   4.0 * (2 * 504 + 80));  // fp32, as transformers has it
  EXPECT_DOUBLE_EQ(kv_bytes_per_position(config), 2.0 * 2 * 2 * 2 * 4);
}

TEST(ModelSizes, ErrorsNameFileAndKey) {
  const auto message = [](const std::string& text) {
    return message_of<DataError>([&] { (void)parse(text); });
  };
  EXPECT_EQ(message("[]"), "c.json: expected an object, found []");
  EXPECT_EQ(message("{}"), "c.json: architectures: missing, and model_type too");
  EXPECT_EQ(
      message(R"({"architectures": ["Qwen3MoEForCausalLM"]})"),
      "c.json: architectures: expected LlamaForCausalLM, MistralForCausalLM, MixtralForCausalLM, "
      "Qwen2ForCausalLM, Qwen2MoeForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM, "
      "Qwen2VLForConditionalGeneration, Qwen2_5_VLForConditionalGeneration or "
      "DeepseekV3ForCausalLM, found 'Qwen3MoEForCausalLM'; the "
      "nearest is "
      "Qwen3MoeForCausalLM");
  std::string text = qwen3_moe("");
  const std::size_t chosen = text.find("_per_tok\": 8");
  text.replace(chosen, 12, "_per_tok\": 129");
  EXPECT_EQ(message(text),
            "c.json: num_experts_per_tok: expected a whole number from 1 to 128, found 129");
  EXPECT_EQ(message(qwen3_moe(R"(, "quantization_config": {"quant_method": "awq"})")),
            "c.json: quantization_config.quant_method: expected fp8, found 'awq'");
  text = qwen3_moe("");
  text.replace(text.find("sparse_step\": 1"), 15, "sparse_step\": 0");
  EXPECT_EQ(message(text),
            "c.json: decoder_sparse_step: expected a whole number from 1 to 16384, found 0");
  EXPECT_EQ(message(qwen3_moe("", "48")),
            "c.json: mlp_only_layers: expected a list of layers, found [48]");
  text = qwen3_moe("");
  text.replace(text.find("\"num_experts\": 128"), 18, "\"none\": 0");
  EXPECT_EQ(message(text), "c.json: missing keys: num_experts");
}

}  // namespace
}  // namespace paceline::test
