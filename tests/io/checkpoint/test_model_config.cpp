#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/checkpoint/model_config_reader.hpp"
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
    "layer_types": ["full_attention", "full_attention"], "sliding_window": null,
    "use_sliding_window": false, "attention_bias": false, "tie_word_embeddings": true,
    "dtype": "bfloat16", "eos_token_id": 151645})");
}

ModelConfig parse(const json& config, const std::string& generation = "") {
  return parse_model_config(config.dump(), "config.json", generation, "generation_config.json");
}
std::string error_of(const json& config, const std::string& generation = "") {
  return test::message_of<DataError>([&] { (void)parse(config, generation); });
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
  EXPECT_EQ(m.architecture, Architecture::qwen2);
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
  EXPECT_FALSE(m.rope_scaling);
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
  EXPECT_EQ(m.architecture, Architecture::llama);
  EXPECT_EQ(m.head_dim, 64);
  EXPECT_FALSE(m.attention_bias);
  ASSERT_TRUE(m.rope_scaling);
  EXPECT_EQ(m.rope_scaling->factor, 32.0F);
  EXPECT_EQ(m.rope_scaling->low_freq_factor, 1.0F);
  EXPECT_EQ(m.rope_scaling->high_freq_factor, 4.0F);
  EXPECT_EQ(m.rope_scaling->original_max_position, 8192);
  EXPECT_EQ(m.rope_theta, 500000.0);
  EXPECT_EQ(m.eos, (std::vector<TokenId>{128001, 128008, 128009}));

  // The layout of transformers 5, alone and beside the older one.
  json both = llama3();
  both["rope_parameters"] = both["rope_scaling"];
  both["rope_parameters"]["rope_theta"] = 500000.0;
  EXPECT_EQ(parse(both).rope_scaling->factor, 32.0F);
  json newer = both;
  newer.erase("rope_scaling");
  newer.erase("rope_theta");
  EXPECT_EQ(parse(newer).rope_scaling->factor, 32.0F);
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
  EXPECT_EQ(m.architecture, Architecture::llama);
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
  EXPECT_EQ(m.architecture, Architecture::qwen3);
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
  EXPECT_EQ(error_with(qwen2(), "architectures", {"Qwen2ForCausalLm"}),
            "config.json: architectures: expected LlamaForCausalLM, Qwen2ForCausalLM or "
            "Qwen3ForCausalLM, found 'Qwen2ForCausalLm'; the nearest is Qwen2ForCausalLM");
  EXPECT_EQ(error_with(qwen2(), "architectures", {"A", "B"}),
            "config.json: architectures: expected a list with one name, found [\"A\",\"B\"]");
  json by_type = qwen2();
  by_type["architectures"] = nullptr;
  EXPECT_EQ(parse(by_type).architecture, Architecture::qwen2);
  EXPECT_EQ(error_with(by_type, "model_type", "mistral"),
            "config.json: model_type: expected llama, qwen2 or qwen3, found 'mistral'");
  EXPECT_EQ(error_without(by_type, "model_type"),
            "config.json: architectures: missing, and model_type too");
  EXPECT_EQ(error_with(qwen2(), "hidden_act", "gelu"),
            "config.json: hidden_act: expected silu, found 'gelu'; the nearest is silu");
  EXPECT_EQ(error_with(qwen2(), "use_sliding_window", true),
            "config.json: use_sliding_window: expected false (sliding windows are not supported), "
            "found true");
  EXPECT_EQ(error_with(qwen2(), "layer_types", {"full_attention", "sliding_attention"}),
            "config.json: layer_types: expected \"full_attention\" alone, found "
            "\"sliding_attention\"");
  EXPECT_EQ(error_with(qwen2(), "quantization_config", {{"bits", 4}}),
            "config.json: quantization_config: quantized weights are not supported; expected "
            "bfloat16 or float32");
  EXPECT_EQ(error_with(qwen2(), "torch_dtype", "float16"),
            "config.json: torch_dtype: expected bfloat16 or float32, found 'float16'; the nearest "
            "is bfloat16");
  EXPECT_EQ(error_with(qwen3(), "dtype", "float8"),
            "config.json: dtype: expected bfloat16 or float32, found 'float8'; the nearest is "
            "float32");
}

TEST(ModelConfig, UnsupportedRotaryTypes) {
  EXPECT_EQ(error_with(qwen2(), "rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}),
            "config.json: rope_scaling.type: expected default or llama3, found 'yarn'");
  EXPECT_EQ(error_with(qwen3(), "rope_parameters", {{"rope_type", "dynamic"}}),
            "config.json: rope_parameters.rope_type: expected default or llama3, found 'dynamic'");
  EXPECT_EQ(error_with(llama3(), "rope_scaling", {{"rope_type", "lama3"}}),
            "config.json: rope_scaling.rope_type: expected default or llama3, found 'lama3'; the "
            "nearest is llama3");
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
  EXPECT_EQ(test::message_of<DataError>([&] { (void)load_model_config(d.path()); }),
            d.file("config.json") + ": No such file or directory");
  d.write("config.json", qwen2().dump());
  EXPECT_EQ(load_model_config(d.path()).eos, std::vector<TokenId>{151645});
  const test::TemporaryDirectory elsewhere;
  elsewhere.write("generation_config.json", "{\"eos_token_id\": 5}");
  EXPECT_EQ(load_model_config(d.path(), elsewhere.path()).eos, std::vector<TokenId>{5});
  d.write("generation_config.json", "{\"eos_token_id\": 3}");
  EXPECT_EQ(load_model_config(d.path()).eos, std::vector<TokenId>{3});
  EXPECT_EQ(load_model_config(d.path(), elsewhere.path()).eos, std::vector<TokenId>{3});
  d.write("generation_config.json", "");
  EXPECT_EQ(test::message_of<DataError>([&] { (void)load_model_config(d.path()); }),
            d.file("generation_config.json") + ": not valid JSON: the file is empty");
  d.write("generation_config.json", "{}");
  d.write("config.json", "{\"a\": 1, \"a\": 2}");
  EXPECT_EQ(test::message_of<DataError>([&] { (void)load_model_config(d.path()); }),
            d.file("config.json") + ": duplicate key \"a\"");
}

}  // namespace
}  // namespace paceline::io
