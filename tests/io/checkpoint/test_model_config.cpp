#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/model/families/families.hpp"
#include "tests/io/checkpoint/files.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::io {
namespace {

using nlohmann::json;

json qwen2() {
  return json::parse(R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
    "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 32768,
    "max_window_layers": 21, "sliding_window": 32768, "use_sliding_window": false,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "hidden_act": "silu",
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "eos_token_id": 151645,
    "attention_dropout": 0.0, "use_cache": true})");
}
json llama3() {
  return json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "attention_bias": false, "mlp_bias": false, "hidden_act": "silu", "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "eos_token_id": [128001, 128008, 128009]})");
}
json qwen3() {
  return json::parse(R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
    "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    "sliding_window": null,
    "use_sliding_window": false, "attention_bias": false, "tie_word_embeddings": true,
    "dtype": "bfloat16", "eos_token_id": 151645})");
}

ModelConfig parse(const json& config, const std::string& generation = "") {
  return parse_model_config(model::families(), config.dump(), "config.json", generation,
                            "generation_config.json");
}
std::string error_of(const json& config, const std::string& generation = "") {
  return test::message_of<DataError>([&] { (void)parse(config, generation); });
}
template <class Scaling>
Scaling scaling(const ModelConfig& config) {
  return std::get<Scaling>(config.rope_scaling);
}
// The error after setting one key of a good configuration.
std::string error_with(json config, const char* key, const json& value) {
  config[key] = value;
  return error_of(config);
}
std::string error_without(json config, const char* key) {
  config.erase(key);
  return error_of(config);
}

TEST(ModelConfig, Qwen2) {
  const ModelConfig m = parse(qwen2());
  EXPECT_EQ(m.family, &model::qwen2);
  EXPECT_EQ(m.vocab, 151936);
  EXPECT_EQ(m.hidden, 896);
  EXPECT_EQ(m.intermediate, 4864);
  EXPECT_EQ(m.layers, 24);
  EXPECT_EQ(m.heads, 14);
  EXPECT_EQ(m.kv_heads, 2);
  EXPECT_EQ(m.head_dim, 64);
  EXPECT_EQ(m.max_position, 32768);
  EXPECT_EQ(m.norm_epsilon, 1e-6F);
  EXPECT_EQ(m.rope_theta, 1e6);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(m.rope_scaling));
  EXPECT_TRUE(m.tied_embeddings);
  EXPECT_TRUE(m.attention_bias);
  EXPECT_FALSE(m.output_bias);
  EXPECT_FALSE(m.mlp_bias);
  EXPECT_FALSE(m.qk_norm);
  EXPECT_EQ(m.dtype, DType::bf16);
  EXPECT_EQ(m.eos, std::vector<TokenId>{151645});
}

TEST(ModelConfig, Llama3) {
  const ModelConfig m = parse(llama3());
  EXPECT_EQ(m.family, &model::llama);
  EXPECT_EQ(m.head_dim, 64);
  EXPECT_FALSE(m.attention_bias);
  EXPECT_EQ(scaling<Llama3RopeScaling>(m).factor, 32.0F);
  EXPECT_EQ(scaling<Llama3RopeScaling>(m).low_freq_factor, 1.0F);
  EXPECT_EQ(scaling<Llama3RopeScaling>(m).high_freq_factor, 4.0F);
  EXPECT_EQ(scaling<Llama3RopeScaling>(m).original_max_position, 8192);
  EXPECT_EQ(m.rope_theta, 500000.0);
  EXPECT_EQ(m.eos, (std::vector<TokenId>{128001, 128008, 128009}));

  // The layout of transformers 5, alone and beside the older one.
  json both = llama3();
  both["rope_parameters"] = both["rope_scaling"];
  both["rope_parameters"]["rope_theta"] = 500000.0;
  EXPECT_EQ(scaling<Llama3RopeScaling>(parse(both)).factor, 32.0F);
  json newer = both;
  newer.erase("rope_scaling");
  newer.erase("rope_theta");
  EXPECT_EQ(scaling<Llama3RopeScaling>(parse(newer)).factor, 32.0F);
  EXPECT_EQ(parse(newer).rope_theta, 500000.0);

  json biased = llama3();
  biased["attention_bias"] = biased["mlp_bias"] = true;
  EXPECT_TRUE(parse(biased).attention_bias);
  EXPECT_TRUE(parse(biased).output_bias);
  EXPECT_TRUE(parse(biased).mlp_bias);
}

TEST(ModelConfig, Llama2Defaults) {
  json config = llama3();
  for (const char* key : {"rope_scaling", "rope_theta", "head_dim", "num_key_value_heads",
                          "torch_dtype", "tie_word_embeddings", "hidden_act", "eos_token_id",
                          "attention_bias", "mlp_bias", "rms_norm_eps", "architectures"}) {
    config.erase(key);
  }
  const ModelConfig m = parse(config);
  EXPECT_EQ(m.family, &model::llama);
  EXPECT_EQ(m.kv_heads, 32);
  EXPECT_EQ(m.head_dim, 64);
  EXPECT_EQ(m.rope_theta, 10000.0);
  EXPECT_EQ(m.norm_epsilon, 1e-6F);
  EXPECT_FALSE(m.tied_embeddings);
  EXPECT_EQ(m.dtype, DType::f32);
  EXPECT_TRUE(m.eos.empty());
}

TEST(ModelConfig, Qwen3) {
  const ModelConfig m = parse(qwen3());
  EXPECT_EQ(m.family, &model::qwen3);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_TRUE(m.qk_norm);
  EXPECT_FALSE(m.attention_bias);
  EXPECT_EQ(m.rope_theta, 1e6);
  json biased = qwen3();
  biased["attention_bias"] = true;
  EXPECT_TRUE(parse(biased).output_bias);
  EXPECT_EQ(error_without(qwen3(), "head_dim"), "config.json: head_dim: missing");
}

TEST(ModelConfig, EosOfTheGenerationConfig) {
  EXPECT_EQ(parse(qwen2(), R"({"eos_token_id": [5, 6]})").eos, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(parse(qwen2(), R"({"eos_token_id": 7})").eos, std::vector<TokenId>{7});
  EXPECT_EQ(parse(qwen2(), R"({"eos_token_id": []})").eos, std::vector<TokenId>{});
  EXPECT_EQ(parse(qwen2(), R"({"eos_token_id": null})").eos, std::vector<TokenId>{151645});
  EXPECT_EQ(parse(qwen2(), "{}").eos, std::vector<TokenId>{151645});
  EXPECT_EQ(
      error_of(qwen2(), R"({"eos_token_id": [5, 151936]})"),
      "generation_config.json: eos_token_id: expected a token id, or a list of them, from 0 to "
      "vocab_size - 1 (151935), found [5,151936]");
  EXPECT_EQ(error_of(qwen2(), "[]"), "generation_config.json: expected an object, found []");
}

TEST(ModelConfig, UnsupportedModels) {
  EXPECT_EQ(
      error_with(qwen2(), "architectures", {"Qwen2ForCausalLm"}),
      "config.json: architectures: expected LlamaForCausalLM, MistralForCausalLM, "
      "MixtralForCausalLM, Qwen2ForCausalLM, Qwen2MoeForCausalLM, Qwen3ForCausalLM, "
      "Qwen3MoeForCausalLM, Qwen2VLForConditionalGeneration, Qwen2_5_VLForConditionalGeneration or "
      "DeepseekV3ForCausalLM, found 'Qwen2ForCausalLm'; the nearest is Qwen2ForCausalLM");
  EXPECT_EQ(error_with(qwen2(), "architectures", {"A", "B"}),
            "config.json: architectures: expected a list with one name, found [\"A\",\"B\"]");
  json by_type = qwen2();
  by_type["architectures"] = nullptr;
  EXPECT_EQ(parse(by_type).family, &model::qwen2);
  EXPECT_EQ(error_with(by_type, "model_type", "gemma"),
            "config.json: model_type: expected llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, "
            "qwen3_moe, qwen2_vl, qwen2_5_vl or deepseek_v3, found 'gemma'");
  EXPECT_EQ(error_without(by_type, "model_type"),
            "config.json: architectures: missing, and model_type too");
  EXPECT_EQ(error_with(qwen2(), "hidden_act", "gelu"),
            "config.json: hidden_act: expected silu, found 'gelu'");
  EXPECT_EQ(error_with(qwen2(), "hidden_activation", "gelu_pytorch_tanh"),
            "config.json: hidden_activation: expected silu, found 'gelu_pytorch_tanh'");
  EXPECT_EQ(error_with(qwen2(), "final_logit_softcapping", 30.0),
            "config.json: final_logit_softcapping: expected null, as in all supported families, "
            "found 30.0");
  EXPECT_EQ(error_with(qwen2(), "quantization_config", {{"bits", 4}}),
            "config.json: missing keys: quantization_config.quant_method");
  EXPECT_EQ(error_with(qwen3(), "dtype", "float8"),
            "config.json: dtype: expected bfloat16, float16 or float32, found 'float8'");
}

TEST(ModelConfig, Fp8InBlocks) {
  const json published = {{"quant_method", "fp8"},
                          {"fmt", "e4m3"},
                          {"activation_scheme", "dynamic"},
                          {"weight_block_size", {128, 128}},
                          {"modules_to_not_convert", {"lm_head"}}};
  json config = qwen3();
  EXPECT_FALSE(parse(config).fp8);
  config["quantization_config"] = published;
  EXPECT_TRUE(parse(config).fp8);
  EXPECT_EQ(parse(config).dtype, DType::bf16);
  config["quantization_config"].erase("fmt");
  config["quantization_config"].erase("activation_scheme");
  EXPECT_TRUE(parse(config).fp8);

  const auto error = [&](const char* key, const json& value) {
    json other = published;
    other[key] = value;
    return error_with(qwen3(), "quantization_config", other);
  };
  const std::string at = "config.json: quantization_config.";
  EXPECT_EQ(error_with(qwen3(), "quantization_config", "fp8"),
            "config.json: quantization_config: expected an object, found \"fp8\"");
  EXPECT_EQ(error("quant_method", "awq"), at + "quant_method: expected fp8, found 'awq'");
  EXPECT_EQ(error("fmt", "e5m2"), at + "fmt: expected e4m3, found 'e5m2'");
  EXPECT_EQ(error("activation_scheme", "static"),
            at + "activation_scheme: expected dynamic, found 'static'");
  EXPECT_EQ(error("weight_block_size", {64, 128}),
            at + "weight_block_size: expected [128, 128], found [64,128]");
  json without = published;
  without.erase("weight_block_size");
  EXPECT_EQ(error_with(qwen3(), "quantization_config", without),
            "config.json: missing keys: quantization_config.weight_block_size");
}

// Each says one thing in two places.
TEST(ModelConfig, ContradictionsAreRefused) {
  EXPECT_EQ(error_with(llama3(), "model_type", "mistral"),
            "config.json: model_type: expected llama, for architectures says LlamaForCausalLM, "
            "found 'mistral'");
  json config = qwen3();
  config["torch_dtype"] = "bfloat16";
  EXPECT_EQ(parse(config).dtype, DType::bf16);
  EXPECT_EQ(error_with(config, "torch_dtype", "float16"),
            "config.json: torch_dtype: expected the same as dtype, found \"float16\"");
  config = llama3();
  config["original_max_position_embeddings"] = 8192;
  EXPECT_EQ(scaling<Llama3RopeScaling>(parse(config)).original_max_position, 8192);
  EXPECT_EQ(error_with(config, "original_max_position_embeddings", 4096),
            "config.json: rope_scaling.original_max_position_embeddings: expected the same as "
            "original_max_position_embeddings outside, 4096, found 8192");
  config["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(scaling<Llama3RopeScaling>(parse(config)).original_max_position, 8192);
  config = llama3();
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["factor"] = 8;
  EXPECT_EQ(error_of(config).find("config.json: rope_scaling: expected nothing beside "
                                  "rope_parameters, or the same, found"),
            0U);
  EXPECT_EQ(error_with(qwen3(), "layer_types", {"full_attention"}),
            "config.json: layer_types: expected a kind for each of the 28 layers "
            "(num_hidden_layers), found 1");
}

TEST(ModelConfig, Fp16) {
  json config = llama3();
  config["torch_dtype"] = "float16";
  EXPECT_EQ(parse(config).dtype, DType::f16);
}

json mistral() {
  json config = llama3();
  config["architectures"] = {"MistralForCausalLM"};
  config["model_type"] = "mistral";
  config["rope_scaling"] = config["sliding_window"] = nullptr;
  return config;
}

TEST(ModelConfig, MistralWithoutAWindow) {
  const ModelConfig m = parse(mistral());
  EXPECT_EQ(m.family, &model::mistral);
  EXPECT_FALSE(m.attention_bias);
  json biased = mistral();
  biased["attention_bias"] = true;  // which transformers does not read
  EXPECT_FALSE(parse(biased).attention_bias);
  EXPECT_EQ(error_with(mistral(), "sliding_window", 4096),
            "config.json: sliding_window: expected null, or at least the context of 131072 tokens "
            "(windows are not supported), found 4096");
  EXPECT_EQ(error_without(mistral(), "sliding_window"),
            "config.json: sliding_window: expected null, or at least the context of 131072 tokens "
            "(windows are not supported), found 4096 (the default)");
  EXPECT_EQ(error_without(mistral(), "num_key_value_heads"),
            "config.json: num_key_value_heads: missing");
  json wide = mistral();
  wide["sliding_window"] = 131072;
  EXPECT_EQ(parse(wide).max_position, 131072);
}

// Of Moonlight, with the groups and YaRN of DeepSeek-V3.
json deepseek() {
  return json::parse(R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "vocab_size": 163840, "hidden_size": 2048, "intermediate_size": 11264,
    "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16,
    "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2,
    "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_group": 8,
    "topk_group": 4, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
    "norm_topk_prob": true, "routed_scaling_factor": 2.446, "max_position_embeddings": 8192,
    "rope_theta": 50000.0, "rms_norm_eps": 1e-05, "hidden_act": "silu",
    "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 2048,
                     "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
    "attention_bias": false, "tie_word_embeddings": false, "torch_dtype": "bfloat16"})");
}

TEST(ModelConfig, DeepseekV3) {
  const ModelConfig m = parse(deepseek());
  EXPECT_EQ(m.family, &model::deepseek);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_EQ(m.rope_dim(), 64);
  EXPECT_EQ(m.latent->q_rank, 0);
  EXPECT_EQ(m.latent->kv_rank, 512);
  EXPECT_EQ(m.latent->value_dim, 128);
  EXPECT_FLOAT_EQ(m.latent->score_scale, 1.2964770F);  // (1 + 0.1 ln 4)^2
  EXPECT_EQ(scaling<YarnRopeScaling>(m).attention_factor, 1);
  EXPECT_EQ(m.max_position, 8192);
  EXPECT_EQ(m.next_token_layers, 0);
  EXPECT_TRUE(m.experts->sigmoid && m.experts->corrected && m.experts->normalised);
  EXPECT_EQ(m.experts->groups, 8);
  EXPECT_EQ(m.experts->chosen_groups, 4);
  EXPECT_EQ(m.experts->scale, 2.446F);
  EXPECT_EQ(m.experts->shared_width, 2816);
  EXPECT_EQ(m.experts->dense_layers, std::vector<std::int32_t>{0});
  EXPECT_EQ(m.segments(), 16);
  json kimi = deepseek();
  kimi["model_type"] = "kimi_k2";
  EXPECT_EQ(parse(kimi).family, &model::deepseek);
}

TEST(ModelConfig, LatentAttentionAndSigmoidsThatAreNotSupported) {
  const std::string at = "config.json: ";
  EXPECT_EQ(error_with(deepseek(), "scoring_func", "softmax"),
            at + "scoring_func: expected sigmoid, found 'softmax'");
  EXPECT_EQ(error_with(deepseek(), "topk_method", "greedy"),
            at + "topk_method: expected noaux_tc, found 'greedy'");
  EXPECT_EQ(error_with(deepseek(), "n_group", 5),
            at + "n_group: expected groups of equally many of n_routed_experts (64), two at "
                 "least, found 5");
  json config = deepseek();
  config["topk_group"] = 1;
  EXPECT_EQ(error_with(config, "num_experts_per_tok", 9),
            at + "topk_group: expected groups of num_experts_per_tok experts (9) or more, found 1");
  EXPECT_EQ(error_with(deepseek(), "num_key_value_heads", 4),
            at + "num_key_value_heads: expected as many as num_attention_heads (16), found 4");
  EXPECT_EQ(error_with(deepseek(), "attention_bias", true),
            at + "attention_bias: expected false, found true");
  EXPECT_EQ(error_with(deepseek(), "rope_interleave", false),
            at + "rope_interleave: expected true, found false");
  EXPECT_EQ(error_with(deepseek(), "qk_rope_head_dim", 63),
            at + "qk_rope_head_dim: expected an even number, found 63");
  EXPECT_EQ(error_with(deepseek(), "moe_layer_freq", 2),
            at + "moe_layer_freq: expected 1, found 2");
  EXPECT_EQ(error_without(deepseek(), "kv_lora_rank"),
            at + "missing keys: kv_lora_rank (the nearest key is q_lora_rank)");
  EXPECT_EQ(error_without(deepseek(), "routed_scaling_factor"),
            at + "missing keys: routed_scaling_factor");
  EXPECT_EQ(error_with(deepseek(), "model_type", "deepseek_v2"),
            at + "model_type: expected deepseek_v3, for architectures says DeepseekV3ForCausalLM, "
                 "found 'deepseek_v2'");
}

TEST(ModelConfig, WindowsThatAreNone) {
  json config = qwen2();
  config["use_sliding_window"] = true;  // 32768, as wide as the context
  EXPECT_EQ(parse(config).max_position, 32768);
  config["sliding_window"] = 4096;
  EXPECT_EQ(error_of(config),
            "config.json: sliding_window: expected null, or at least the context of 32768 tokens "
            "(windows are not supported), found 4096 in layers from 21 on (max_window_layers)");
  config["max_window_layers"] = 24;
  EXPECT_EQ(parse(config).layers, 24);
  config["max_window_layers"] = 21;
  config["sliding_window"] = nullptr;
  EXPECT_EQ(parse(config).layers, 24);
  config.erase("sliding_window");
  EXPECT_EQ(error_of(config),
            "config.json: sliding_window: expected null, or at least the context of 32768 tokens "
            "(windows are not supported), found 4096 (the default) in layers from 21 on "
            "(max_window_layers)");
  config["layer_types"] = std::vector<std::string>(24, "full_attention");
  EXPECT_EQ(parse(config).layers, 24);
  config["layer_types"][3] = "sliding_attention";
  EXPECT_EQ(error_of(config),
            "config.json: sliding_window: expected null, or at least the context of 32768 tokens "
            "(windows are not supported), found 4096 (the default) in layer 3 (layer_types)");
  config["use_sliding_window"] = false;
  EXPECT_EQ(error_of(config),
            "config.json: layer_types: sliding_attention, where use_sliding_window and "
            "sliding_window say that there is no window");
  config["layer_types"][3] = "linear_attention";
  EXPECT_EQ(error_of(config),
            "config.json: layer_types: expected full_attention or sliding_attention, found "
            "\"linear_attention\"");
  EXPECT_EQ(error_with(llama3(), "sliding_window", 4096),
            "config.json: sliding_window: expected null, or at least the context of 131072 tokens "
            "(windows are not supported), found 4096 in a llama, which has none");
  EXPECT_EQ(error_with(llama3(), "use_sliding_window", true),
            "config.json: use_sliding_window: expected false in a llama, which has no windows, "
            "found true");
}

TEST(ModelConfig, LinearRope) {
  json config = qwen2();
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(scaling<LinearRopeScaling>(parse(config)).factor, 4.0);
  EXPECT_EQ(parse(config).max_position, 4 * 32768);
  config["rope_scaling"]["rope_type"] = "linear";
  EXPECT_EQ(scaling<LinearRopeScaling>(parse(config)).factor, 4.0);
  // The newer object has no "type".
  config["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 4}, {"rope_theta", 1000000.0}};
  EXPECT_EQ(scaling<LinearRopeScaling>(parse(config)).factor, 4.0);
  config.erase("rope_parameters");
  config["rope_scaling"]["rope_type"] = "default";
  EXPECT_EQ(error_of(config),
            "config.json: rope_scaling.type: expected the same as rope_type, "
            "'default', found \"linear\"");
  config["rope_scaling"] = {{"type", "linear"}};
  EXPECT_EQ(error_of(config), "config.json: missing keys: rope_scaling.factor");
  config["rope_scaling"]["factor"] = 0.5;
  EXPECT_EQ(error_of(config), "config.json: rope_scaling.factor: expected at least 1, found 0.5");
  config["rope_scaling"]["factor"] = 1e6;
  EXPECT_EQ(error_of(config),
            "config.json: rope_scaling.factor: expected a context of at most 1073741824 tokens, "
            "found 1000000.0");
}

TEST(ModelConfig, DynamicRopeKeepsTheContext) {
  json config = qwen2();
  config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 4.0}};
  EXPECT_EQ(scaling<DynamicRopeScaling>(parse(config)).factor, 4.0);
  EXPECT_EQ(parse(config).max_position, 32768);
  config["rope_scaling"]["original_max_position_embeddings"] = 4096;
  EXPECT_EQ(error_of(config),
            "config.json: rope_scaling.original_max_position_embeddings: expected none beside "
            "rope_type dynamic, or max_position_embeddings, 32768, found 4096");
}

TEST(ModelConfig, YarnRope) {
  json config = qwen2();
  config["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  const ModelConfig model = parse(config);
  EXPECT_EQ(model.max_position, 131072);  // as published: max_position_embeddings is unchanged
  const auto yarn = scaling<YarnRopeScaling>(model);
  EXPECT_EQ(yarn.factor, 4.0);
  EXPECT_EQ(yarn.original_max_position, 32768);
  EXPECT_EQ(yarn.beta_fast, 32.0);
  EXPECT_EQ(yarn.beta_slow, 1.0);
  EXPECT_TRUE(yarn.truncate);
  EXPECT_NEAR(yarn.attention_factor, 0.1 * std::log(4.0) + 1, 1e-12);
  config["rope_scaling"].erase("original_max_position_embeddings");
  EXPECT_EQ(scaling<YarnRopeScaling>(parse(config)).original_max_position, 32768);
  config["max_position_embeddings"] = 131072;
  config["original_max_position_embeddings"] = 32768;
  EXPECT_EQ(scaling<YarnRopeScaling>(parse(config)).original_max_position, 32768);
  EXPECT_EQ(parse(config).max_position, 131072);

  config["rope_scaling"].update({{"mscale", 0.707},
                                 {"mscale_all_dim", 0.5},
                                 {"truncate", false},
                                 {"beta_fast", 16},
                                 {"beta_slow", 0}});
  const auto scaled = scaling<YarnRopeScaling>(parse(config));
  EXPECT_NEAR(scaled.attention_factor, (0.0707 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1),
              1e-12);
  EXPECT_FALSE(scaled.truncate);
  EXPECT_EQ(scaled.beta_fast, 16.0);
  EXPECT_EQ(scaled.beta_slow, 1.0);
  config["rope_scaling"]["attention_factor"] = 1.5;
  EXPECT_EQ(scaling<YarnRopeScaling>(parse(config)).attention_factor, 1.5);
  config["rope_scaling"]["beta_slow"] = 20;
  EXPECT_EQ(error_of(config),
            "config.json: rope_scaling.beta_fast: expected a beta_fast (by default 32) of at least "
            "beta_slow (by default 1), found 16");
}

TEST(ModelConfig, UnsupportedRotaryTypes) {
  EXPECT_EQ(error_with(qwen2(), "rope_scaling", {{"type", "longrope"}, {"factor", 4.0}}),
            "config.json: rope_scaling.type: expected default, linear, dynamic, yarn or llama3, "
            "found 'longrope'");
  EXPECT_EQ(error_with(llama3(), "rope_scaling", {{"rope_type", "lama3"}}),
            "config.json: rope_scaling.rope_type: expected default, linear, dynamic, yarn or "
            "llama3, found 'lama3'");
  EXPECT_EQ(error_with(llama3(), "rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}),
            "config.json: missing keys: rope_scaling.low_freq_factor, "
            "rope_scaling.high_freq_factor, rope_scaling.original_max_position_embeddings");
  EXPECT_EQ(error_with(llama3(), "rope_scaling", 8),
            "config.json: rope_scaling: expected an object or null, found 8");
  EXPECT_EQ(error_with(qwen3(), "rope_parameters",
                       {{"full_attention", {{"rope_theta", 1}}}, {"rope_type", "default"}}),
            "config.json: rope_parameters.full_attention: expected a value, not an object, found "
            "{\"rope_theta\":1}");
  EXPECT_EQ(
      error_with(qwen3(), "rope_theta", 5.0),
      "config.json: rope_parameters.rope_theta: expected the same as rope_theta outside, 5.0, "
      "found 1000000.0");
  EXPECT_EQ(error_with(qwen3(), "partial_rotary_factor", 0.5),
            "config.json: partial_rotary_factor: expected 1, found 0.5");
  json backwards = llama3();
  backwards["rope_scaling"]["low_freq_factor"] = 4.0;
  EXPECT_EQ(error_of(backwards),
            "config.json: rope_scaling.high_freq_factor: expected more than low_freq_factor, found "
            "4.0");
}

TEST(ModelConfig, MissingAndImpossibleSizes) {
  json config = qwen2();
  config.erase("vocab_size");
  config["hiden_size"] = config["hidden_size"];
  config.erase("hidden_size");
  EXPECT_EQ(error_of(config).find("config.json: missing keys: vocab_size"), 0U);
  EXPECT_NE(error_of(config).find("hidden_size (the nearest key is hiden_size)"),
            std::string::npos);
  EXPECT_EQ(error_without(qwen2(), "num_key_value_heads"),
            "config.json: num_key_value_heads: missing");
  EXPECT_EQ(error_with(qwen2(), "num_key_value_heads", 3),
            "config.json: num_key_value_heads: expected a divisor of num_attention_heads (14), "
            "found 3");
  EXPECT_EQ(error_with(qwen2(), "num_key_value_heads", 15),
            "config.json: num_key_value_heads: expected a whole number from 1 to 14, found 15");
  EXPECT_EQ(error_with(qwen2(), "hidden_size", 897),
            "config.json: hidden_size: expected an even multiple of num_attention_heads (14), as "
            "there is no head_dim, found 897");
  EXPECT_EQ(error_with(qwen3(), "head_dim", 65),
            "config.json: head_dim: expected an even number, found 65");
  for (const json& bad : {json(-1), json(0), json(1e300), json(2.5), json("24"), json(true),
                          json(18446744073709551615U), json::array()}) {
    EXPECT_EQ(error_with(qwen2(), "num_hidden_layers", bad),
              "config.json: num_hidden_layers: expected a whole number from 1 to 4096, found " +
                  bad.dump());
  }
  EXPECT_EQ(error_with(qwen2(), "rms_norm_eps", 0),
            "config.json: rms_norm_eps: expected a number above 0.0 and at most 1.0, found 0");
  EXPECT_EQ(error_with(qwen2(), "rope_theta", -1),
            "config.json: rope_theta: expected a number above 1e-20 and at most 1e+15, found -1");
  EXPECT_EQ(
      error_with(qwen2(), "rope_theta", 1e-46),  // zero in fp32
      "config.json: rope_theta: expected a number above 1e-20 and at most 1e+15, found 1e-46");
  EXPECT_EQ(error_with(qwen3(), "rope_parameters", {{"rope_theta", 1e-30}}),
            "config.json: rope_parameters.rope_theta: expected a number above 1e-20 and at most "
            "1e+15, found 1e-30");
  EXPECT_EQ(error_with(qwen2(), "tie_word_embeddings", "yes"),
            "config.json: tie_word_embeddings: expected true or false, found \"yes\"");
}

TEST(ModelConfig, FilesOfADirectory) {
  const test::TemporaryDirectory d;
  EXPECT_EQ(
      test::message_of<DataError>([&] { (void)load_model_config(model::families(), d.path()); }),
      d.file("config.json") + ": No such file or directory");
  d.write("adapter_config.json", R"({"peft_type": "LORA", "base_model_name_or_path": "Q/B"})");
  EXPECT_EQ(
      test::message_of<DataError>([&] { (void)load_model_config(model::families(), d.path()); })
          .find(d.path() + ": a PEFT adapter alone (adapter_config.json), of the base model "
                           "'Q/B', without a model's weights; merge it once with python3"),
      0U);
  d.write("config.json", qwen2().dump());
  EXPECT_EQ(load_model_config(model::families(), d.path()).eos, std::vector<TokenId>{151645});
  const test::TemporaryDirectory elsewhere;
  elsewhere.write("generation_config.json", "{\"eos_token_id\": 5}");
  EXPECT_EQ(load_model_config(model::families(), d.path(), elsewhere.path()).eos,
            std::vector<TokenId>{5});
  d.write("generation_config.json", "{\"eos_token_id\": 3}");
  EXPECT_EQ(load_model_config(model::families(), d.path()).eos, std::vector<TokenId>{3});
  EXPECT_EQ(load_model_config(model::families(), d.path(), elsewhere.path()).eos,
            std::vector<TokenId>{3});
  d.write("generation_config.json", "");
  EXPECT_EQ(
      test::message_of<DataError>([&] { (void)load_model_config(model::families(), d.path()); }),
      d.file("generation_config.json") + ": not valid JSON: the file is empty");
  d.write("generation_config.json", "{}");
  d.write("config.json", "{\"a\": 1, \"a\": 2}");
  EXPECT_EQ(
      test::message_of<DataError>([&] { (void)load_model_config(model::families(), d.path()); }),
      d.file("config.json") + ": duplicate key \"a\"");
}

// As Qwen2.5-VL was published: one object.
json qwen2_5_vl() {
  json config = qwen2();
  config["architectures"] = {"Qwen2_5_VLForConditionalGeneration"};
  config["model_type"] = "qwen2_5_vl";
  config["image_token_id"] = 151655;
  config["video_token_id"] = 151656;
  config["vision_start_token_id"] = 151652;
  config["vision_config"] = json::object();
  config["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {8, 12, 12}}};
  return config;
}

TEST(ModelConfig, DecodersOfModelsThatReadPictures) {
  const ModelConfig m = parse(qwen2_5_vl());
  EXPECT_EQ(m.family, &model::qwen2_5_vl);
  EXPECT_TRUE(m.attention_bias);
  ASSERT_TRUE(m.vision);
  EXPECT_EQ(m.vision->image_token, 151655);
  EXPECT_EQ(m.vision->video_token, 151656);
  EXPECT_EQ(m.vision->rope_sections, (std::array<std::int32_t, 3>{8, 12, 12}));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(m.rope_scaling));
  EXPECT_EQ(m.placeholders, (std::vector<TokenId>{151655, 151656, 151652}));
  EXPECT_FALSE(parse(qwen2()).vision);
  // As transformers 4.5 wrote it, and with YaRN.
  json config = qwen2_5_vl();
  config["rope_scaling"] = {
      {"type", "default"}, {"rope_type", "default"}, {"mrope_section", {8, 12, 12}}};
  EXPECT_EQ(parse(config).vision->rope_sections[1], 12);
  config["rope_scaling"] = {{"type", "yarn"},
                            {"mrope_section", {8, 12, 12}},
                            {"factor", 4.0},
                            {"original_max_position_embeddings", 32768}};
  EXPECT_TRUE(std::holds_alternative<YarnRopeScaling>(parse(config).rope_scaling));
}

TEST(ModelConfig, PlaceholdersOfPicturesWhereNoneAreNamed) {
  json config = qwen2_5_vl();
  config.erase("image_token_id");
  config.erase("video_token_id");
  const ModelConfig m = parse(config);
  EXPECT_EQ(m.vision->image_token, 151655);
  EXPECT_EQ(m.placeholders, (std::vector<TokenId>{151652, 151655, 151656}));
}

// As transformers 4.52 and later save it: the decoder's keys in an object of their own.
TEST(ModelConfig, DecodersInATextConfig) {
  json text = qwen2_5_vl();
  json config;
  for (const char* key :
       {"architectures", "model_type", "image_token_id", "video_token_id", "vision_config"}) {
    config[key] = text[key];
    text.erase(key);
  }
  text["tie_word_embeddings"] = false;
  text.erase("torch_dtype");
  text.erase("rope_theta");
  text.erase("rope_scaling");
  text["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 500000.0}, {"mrope_section", {8, 12, 12}}};
  text["model_type"] = "qwen2_5_vl_text";
  config["text_config"] = text;
  config["dtype"] = "bfloat16";
  config["tie_word_embeddings"] = true;
  const ModelConfig m = parse(config);
  EXPECT_EQ(m.hidden, 896);
  EXPECT_EQ(m.rope_theta, 500000.0);
  EXPECT_EQ(m.dtype, DType::bf16);
  EXPECT_TRUE(m.tied_embeddings);
  EXPECT_EQ(m.eos, std::vector<TokenId>{151645});
  EXPECT_EQ(m.vision->image_token, 151655);
  config["text_config"].erase("hidden_size");
  EXPECT_EQ(error_with(config, "text_config", config["text_config"]),
            "config.json: missing keys: text_config.hidden_size");
  EXPECT_EQ(error_with(config, "text_config", 5),
            "config.json: text_config: expected an object, found 5");
}

TEST(ModelConfig, SectionsOfAHeadAreChecked) {
  const auto with = [](const json& sections) {
    return error_with(qwen2_5_vl(), "rope_scaling",
                      {{"type", "mrope"}, {"mrope_section", sections}});
  };
  const std::string expected =
      "config.json: rope_scaling.mrope_section: expected three whole numbers that add up to half "
      "a head, 32, found ";
  EXPECT_EQ(with({8, 12, 13}), expected + "[8,12,13]");
  EXPECT_EQ(with({8, 24}), expected + "[8,24]");
  EXPECT_EQ(with({-8, 20, 20}), expected + "[-8,20,20]");
  EXPECT_EQ(error_with(qwen2_5_vl(), "rope_scaling", {{"type", "mrope"}}),
            "config.json: missing keys: rope_scaling.mrope_section");
  EXPECT_EQ(error_without(qwen2_5_vl(), "rope_scaling"), "config.json: missing keys: rope_scaling");
  EXPECT_EQ(error_without(qwen2_5_vl(), "rope_theta"),
            "config.json: missing keys: rope_scaling.rope_theta");
  EXPECT_EQ(error_with(qwen2(), "rope_scaling", {{"type", "mrope"}}),
            "config.json: rope_scaling.type: expected default, linear, dynamic, yarn or llama3, "
            "found 'mrope'");
}

json with_tower(json config, const json& tower) {
  config["vision_config"] = tower;
  return config;
}

// As published.
json qwen2_5_vl_tower() {
  return json::parse(R"({"depth": 32, "hidden_act": "silu", "hidden_size": 1280,
    "intermediate_size": 3420, "num_heads": 16, "in_chans": 3, "out_hidden_size": 896,
    "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14, "window_size": 112,
    "fullatt_block_indexes": [31, 7, 15, 23], "tokens_per_second": 2, "temporal_patch_size": 2})");
}

TEST(ModelConfig, Towers) {
  EXPECT_FALSE(parse(qwen2_5_vl()).vision->tower);
  const ModelConfig newer = parse(with_tower(qwen2_5_vl(), qwen2_5_vl_tower()));
  const TowerConfig& windowed = *newer.vision->tower;
  EXPECT_EQ(windowed.head_dim(), 80);
  EXPECT_EQ(windowed.intermediate, 3420);
  EXPECT_EQ(windowed.window, 4);
  EXPECT_FALSE(windowed.is_windowed(7));
  EXPECT_TRUE(windowed.is_windowed(8));
  EXPECT_EQ(windowed.patch_elements(), 1176);
  json older = qwen2_5_vl();
  older["architectures"] = {"Qwen2VLForConditionalGeneration"};
  older["model_type"] = "qwen2_vl";
  const json tower = json::parse(R"({"depth": 32, "embed_dim": 1280, "mlp_ratio": 4,
    "num_heads": 16, "in_chans": 3, "hidden_size": 896, "patch_size": 14,
    "spatial_merge_size": 2, "spatial_patch_size": 14, "temporal_patch_size": 2})");
  const ModelConfig model = parse(with_tower(older, tower));
  EXPECT_EQ(model.vision->tower->intermediate, 5120);
  EXPECT_FALSE(model.vision->tower->is_windowed(0));
  // 5-dimensional patches, and every layer.
  const std::vector<ExpectedTensor> tensors = expected_tensors(model.family->describe_tower(model));
  EXPECT_EQ(tensors[0].name, "visual.patch_embed.proj.weight");
  EXPECT_EQ(tensors[0].shape, (std::vector<std::int64_t>{1280, 3, 2, 14, 14}));
  EXPECT_EQ(tensors.size(), 1 + 32 * 12 + 6U);
}

TEST(ModelConfig, TowersThatAreNotComputedAreRefused) {
  const auto with = [](const char* key, const json& value) {
    json tower = qwen2_5_vl_tower();
    tower[key] = value;
    return error_with(qwen2_5_vl(), "vision_config", tower);
  };
  const std::string at = "config.json: vision_config.";
  EXPECT_EQ(with("hidden_act", "gelu"), at + "hidden_act: expected silu, found 'gelu'");
  EXPECT_EQ(with("out_hidden_size", 3584), at + "out_hidden_size: expected 896, found 3584");
  EXPECT_EQ(with("in_chans", 1), at + "in_chans: expected 3, found 1");
  EXPECT_EQ(with("num_heads", 12),
            at + "num_heads: expected heads of a multiple of 8 elements up to 256, of 1280 in all, "
                 "found 12");
  EXPECT_EQ(with("window_size", 20), at + "window_size: expected at least 28, found 20");
  EXPECT_EQ(with("fullatt_block_indexes", {32}),
            at + "fullatt_block_indexes: expected a list of layers below depth, 32, found [32]");
}

// As transformers 4.49 saved it: without what it took for granted.
TEST(ModelConfig, TowersOfWhichOnlyDifferencesAreNamed) {
  json config = qwen2_5_vl();
  config["hidden_size"] = 3584;
  config["num_attention_heads"] = 28;
  config["num_key_value_heads"] = 4;
  config["vision_config"] = {{"hidden_size", 1280}, {"in_chans", 3}};
  config["rope_scaling"]["mrope_section"] = {16, 24, 24};
  const TowerConfig tower = *parse(config).vision->tower;
  EXPECT_EQ(tower.layers, 32);
  EXPECT_EQ(tower.heads, 16);
  EXPECT_EQ(tower.intermediate, 3420);
  EXPECT_EQ(tower.window, 4);
  EXPECT_EQ(tower.whole_layers, (std::vector<std::int32_t>{7, 15, 23, 31}));
  config = qwen2_5_vl();
  config["vision_config"] = {{"hidden_size", 1280}};
  EXPECT_EQ(error_with(config, "rope_theta", 1e6),
            "config.json: vision_config.out_hidden_size: expected 896, found 3584");
}

}  // namespace
}  // namespace paceline::io
