#include "io/checkpoint/model_config_reader.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "io/checkpoint/json_section.hpp"
#include "io/checkpoint/json_text.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct ArchitectureName {
  std::string_view class_name;  // in "architectures"
  std::string_view model_type;
  Architecture architecture;
};
constexpr std::array<ArchitectureName, 3> architecture_names{{
    {"LlamaForCausalLM", "llama", Architecture::llama},
    {"Qwen2ForCausalLM", "qwen2", Architecture::qwen2},
    {"Qwen3ForCausalLM", "qwen3", Architecture::qwen3},
}};

// By which published heads say what they are. All of them are Llama layers, whatever the target is.
constexpr std::array<std::string_view, 3> head_class_names{
    "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaForCausalLM"};

void check_head_class(const JsonSection& config) {
  const json* list = config.find("architectures");
  if (list == nullptr) return;
  if (!list->is_array() || list->size() != 1 || !(*list)[0].is_string()) {
    config.fail_expected("architectures", "a list with one name");
  }
  const auto name = (*list)[0].get<std::string>();
  const auto* known = std::find(head_class_names.begin(), head_class_names.end(), name);
  if (known == head_class_names.end()) config.fail_choice("architectures", name, head_class_names);
}

// "architectures" decides when it is there, else "model_type".
Architecture read_architecture(const JsonSection& config) {
  std::array<std::string_view, architecture_names.size()> supported;
  const json* list = config.find("architectures");
  if (list != nullptr && !(list->is_array() && list->empty())) {
    if (!list->is_array() || list->size() != 1 || !(*list)[0].is_string()) {
      config.fail_expected("architectures", "a list with one name");
    }
    const auto name = (*list)[0].get<std::string>();
    for (std::size_t i = 0; i < supported.size(); ++i) {
      supported[i] = architecture_names[i].class_name;
      if (name == supported[i]) return architecture_names[i].architecture;
    }
    config.fail_choice("architectures", name, supported);
  }
  const std::optional<std::string> type = config.text("model_type");
  if (!type) config.fail("architectures", "missing, and model_type too");
  for (std::size_t i = 0; i < supported.size(); ++i) {
    supported[i] = architecture_names[i].model_type;
    if (*type == supported[i]) return architecture_names[i].architecture;
  }
  config.fail_choice("model_type", *type, supported);
}

// Sizes in elements. The bounds are far above any model of this kind and keep products of two
// within 64 bits.
void read_sizes(const JsonSection& config, ModelConfig& model) {
  model.vocab = *config.integer("vocab_size", 2, 1 << 24);
  model.hidden = *config.integer("hidden_size", 2, 1 << 20);
  model.intermediate = *config.integer("intermediate_size", 1, 1 << 24);
  model.layers = *config.integer("num_hidden_layers", 1, 4096);
  model.heads = *config.integer("num_attention_heads", 1, 1 << 14);
  const auto kv_heads = config.integer("num_key_value_heads", 1, model.heads);
  if (!kv_heads && model.architecture != Architecture::llama) {
    // Qwen's default is a fixed number of its first release, no default for other sizes.
    config.fail("num_key_value_heads", "missing");
  }
  model.kv_heads = kv_heads.value_or(model.heads);
  if (model.heads % model.kv_heads != 0) {
    config.fail_expected("num_key_value_heads",
                         "a divisor of num_attention_heads (" + std::to_string(model.heads) + ")");
  }

  if (const auto head_dim = config.integer("head_dim", 2, 4096)) {
    model.head_dim = *head_dim;
    if (model.head_dim % 2 != 0) config.fail_expected("head_dim", "an even number");
  } else {
    if (model.architecture == Architecture::qwen3) config.fail("head_dim", "missing");
    model.head_dim = model.hidden / model.heads;
    if (model.hidden % model.heads != 0 || model.head_dim % 2 != 0 || model.head_dim > 4096) {
      config.fail_expected("hidden_size", "an even multiple of num_attention_heads (" +
                                              std::to_string(model.heads) +
                                              "), as there is no head_dim");
    }
  }
}

constexpr std::array<std::string_view, 2> rope_types{"default", "llama3"};

// "rope_type", or "type" as it was called first; absent is default.
std::string read_rope_type(const JsonSection& rope) {
  const auto type = rope.text("rope_type");
  const auto old_type = rope.text("type");
  if (type && old_type && *type != *old_type) {
    rope.fail_expected("type", "the same as rope_type, " + show_text(*type));
  }
  const char* key = type ? "rope_type" : "type";
  std::string name = type ? *type : old_type.value_or("default");
  if (name != rope_types[0] && name != rope_types[1]) rope.fail_choice(key, name, rope_types);
  return name;
}

Llama3RopeScaling read_llama3(const JsonSection& rope) {
  constexpr std::array<const char*, 4> required{"factor", "low_freq_factor", "high_freq_factor",
                                                "original_max_position_embeddings"};
  rope.require(required);
  Llama3RopeScaling scaling;
  scaling.factor = static_cast<float>(*rope.number("factor", 0, 1e6));
  scaling.low_freq_factor = static_cast<float>(*rope.number("low_freq_factor", 0, 1e6));
  scaling.high_freq_factor = static_cast<float>(*rope.number("high_freq_factor", 0, 1e6));
  scaling.original_max_position = *rope.integer("original_max_position_embeddings", 1, 1 << 30);
  if (!(scaling.factor >= 1)) rope.fail_expected("factor", "at least 1");
  if (!(scaling.high_freq_factor > scaling.low_freq_factor) || !(scaling.low_freq_factor > 0)) {
    rope.fail_expected("high_freq_factor", "more than low_freq_factor");
  }
  return scaling;
}

// A file for both versions has both objects; only the newer one holds rope_theta.
void check_same_rope(const JsonSection& config) {
  if (config.find("rope_parameters") == nullptr || config.find("rope_scaling") == nullptr) return;
  json newer = *config.find("rope_parameters");
  json older = *config.find("rope_scaling");
  if (newer.is_object()) newer.erase("rope_theta");
  if (older.is_object()) older.erase("rope_theta");
  if (newer != older) {
    config.fail_expected("rope_scaling", "nothing beside rope_parameters, or the same");
  }
}

// transformers 5 writes {"rope_parameters": {"rope_type", "rope_theta", ...}}, 4 writes
// {"rope_theta": ..., "rope_scaling": null | {"rope_type", ...}}.
void read_rope(const JsonSection& config, ModelConfig& model) {
  // Frequencies go up to 1 / rope_theta, angles to 2^30 times that, and fp32 has to hold them.
  constexpr double min_theta = 1e-20;
  constexpr double max_theta = 1e15;
  const auto outer_theta = config.number("rope_theta", min_theta, max_theta);
  if (outer_theta) model.rope_theta = *outer_theta;
  check_same_rope(config);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json* object = config.find(key);
    if (object == nullptr) continue;
    if (!object->is_object()) config.fail_expected(key, "an object or null");
    const JsonSection rope(*object, config.file(), std::string(key) + ".");
    const auto inner_theta = rope.number("rope_theta", min_theta, max_theta);
    if (inner_theta && outer_theta && *inner_theta != *outer_theta) {
      rope.fail_expected("rope_theta",
                         "the same as rope_theta outside, " + json(*outer_theta).dump());
    }
    if (inner_theta) model.rope_theta = *inner_theta;
    for (const auto& item : object->items()) {
      // One object for each kind of layer: models that mix kinds of attention.
      if (item.value().is_object()) rope.fail_expected(item.key(), "a value, not an object");
    }
    const json* partial = rope.find("partial_rotary_factor");
    if (partial != nullptr && *partial != 1.0) rope.fail_expected("partial_rotary_factor", "1");
    if (read_rope_type(rope) == "llama3") model.rope_scaling = read_llama3(rope);
  }
  const json* partial = config.find("partial_rotary_factor");
  if (partial != nullptr && *partial != 1.0) config.fail_expected("partial_rotary_factor", "1");
}

// Features that the decoder does not have.
void check_supported(const JsonSection& config) {
  constexpr std::array<std::string_view, 1> activations{"silu"};
  const std::string activation = config.text("hidden_act").value_or("silu");
  if (activation != activations[0]) config.fail_choice("hidden_act", activation, activations);
  if (config.flag("use_sliding_window")) {
    config.fail_expected("use_sliding_window", "false (sliding windows are not supported)");
  }
  if (const json* layers = config.find("layer_types")) {
    if (!layers->is_array()) config.fail_expected("layer_types", "a list of layer kinds");
    for (const json& layer : *layers) {
      if (layer != "full_attention") {
        config.fail("layer_types", "expected \"full_attention\" alone, found " + show_json(layer));
      }
    }
  }
  if (config.find("quantization_config") != nullptr) {
    config.fail("quantization_config",
                "quantized weights are not supported; expected bfloat16 or float32");
  }
}

void read_biases(const JsonSection& config, ModelConfig& model) {
  switch (model.architecture) {
    case Architecture::qwen2:
      model.attention_bias = true;  // whatever the file says, as in transformers
      break;
    case Architecture::llama:
      model.attention_bias = model.output_bias = config.flag("attention_bias");
      model.mlp_bias = config.flag("mlp_bias");
      break;
    case Architecture::qwen3:
      model.attention_bias = model.output_bias = config.flag("attention_bias");
      model.qk_norm = true;
      break;
  }
}

// transformers 5 says "dtype", 4 says "torch_dtype"; absent means float32 there.
DType read_dtype(const JsonSection& config) {
  constexpr std::array<std::string_view, 2> names{"bfloat16", "float32"};
  const char* key = config.find("dtype") != nullptr ? "dtype" : "torch_dtype";
  std::string name = config.text(key).value_or("float32");
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (name != names[0] && name != names[1]) config.fail_choice(key, name, names);
  return name == names[0] ? DType::bf16 : DType::f32;
}

// nullopt when the key is absent.
std::optional<std::vector<TokenId>> read_eos(const JsonSection& config, std::int32_t vocab) {
  const json* value = config.find("eos_token_id");
  if (value == nullptr) return std::nullopt;
  std::vector<TokenId> ids;
  const auto add = [&](const json& id) {
    if (!id.is_number_integer() || id < 0 || id >= vocab) {
      config.fail_expected("eos_token_id",
                           "a token id, or a list of them, from 0 to vocab_size - 1 (" +
                               std::to_string(vocab - 1) + ")");
    }
    ids.push_back(id.get<TokenId>());
  };
  if (value->is_array()) {
    for (const json& id : *value) add(id);
  } else {
    add(*value);
  }
  return ids;
}

// "image_token_id", "vision_start_token_id", "audio_token_index" and the like. Older files have
// negative ones, which are no rows of the vocabulary.
std::vector<TokenId> read_placeholders(const json& root, std::int32_t vocab) {
  constexpr std::array<std::string_view, 9> kinds{"image", "video", "vision", "audio", "speech",
                                                  "boi",   "eoi",   "boa",    "eoa"};
  std::vector<TokenId> ids;
  for (const auto& [key, value] : root.items()) {
    const bool token = key.ends_with("_token_id") || key.ends_with("_token_index");
    const bool of_kind = std::any_of(kinds.begin(), kinds.end(), [&key](std::string_view kind) {
      return key.starts_with(kind);
    });
    if (token && of_kind && value.is_number_integer() && value >= 0 && value < vocab)
      ids.push_back(value.get<TokenId>());
  }
  return ids;
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, const std::string& name,
                               std::string_view generation_text,
                               const std::string& generation_name) {
  const json root = parse_json_object(text, name);
  const JsonSection config(root, name, "");

  ModelConfig model;
  model.architecture = read_architecture(config);
  constexpr std::array<const char*, 6> required{"vocab_size",          "hidden_size",
                                                "intermediate_size",   "num_hidden_layers",
                                                "num_attention_heads", "max_position_embeddings"};
  config.require(required);
  read_sizes(config, model);
  model.max_position = *config.integer("max_position_embeddings", 1, 1 << 30);
  check_supported(config);
  read_biases(config, model);
  read_rope(config, model);
  model.norm_epsilon = static_cast<float>(config.number("rms_norm_eps", 0, 1).value_or(1e-6));
  if (!(model.norm_epsilon > 0)) config.fail_expected("rms_norm_eps", "a number above 1e-45");
  model.tied_embeddings = config.flag("tie_word_embeddings");
  model.dtype = read_dtype(config);

  std::optional<std::vector<TokenId>> eos;
  if (!generation_text.empty()) {
    const json generation = parse_json_object(generation_text, generation_name);
    eos = read_eos(JsonSection(generation, generation_name, ""), model.vocab);
  }
  if (!eos) eos = read_eos(config, model.vocab);
  if (eos) model.eos = *eos;
  model.placeholders = read_placeholders(root, model.vocab);
  return model;
}

Eagle3Config parse_eagle3_config(std::string_view text, const std::string& name) {
  const json root = parse_json_object(text, name);
  const JsonSection config(root, name, "");

  Eagle3Config head;
  ModelConfig& layer = head.layer;
  check_head_class(config);
  layer.architecture = Architecture::llama;
  // Not max_position_embeddings: heads are used at any position, whatever they say.
  constexpr std::array<const char*, 5> required{"vocab_size", "hidden_size", "intermediate_size",
                                                "num_hidden_layers", "num_attention_heads"};
  config.require(required);
  read_sizes(config, layer);
  if (layer.layers != 1) config.fail_expected("num_hidden_layers", "1 (the head's own layer)");
  check_supported(config);
  read_rope(config, layer);
  layer.norm_epsilon = static_cast<float>(config.number("rms_norm_eps", 0, 1).value_or(1e-6));
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    if (config.flag(bias)) config.fail_expected(bias, "false (a head has no biases)");
  }
  head.target_hidden = config.integer("target_hidden_size", 2, 1 << 20).value_or(layer.hidden);
  head.draft_vocab = config.integer("draft_vocab_size", 2, layer.vocab).value_or(layer.vocab);
  head.norm_before_residual = config.flag("norm_before_residual");
  return head;
}

Eagle3Config load_eagle3_config(const std::string& directory) {
  const std::string path = fs::path(directory) / "config.json";
  return parse_eagle3_config(read_text_file(path), path);
}

std::string generation_config_path(const std::string& directory, const std::string& otherwise) {
  for (const std::string& place : {directory, otherwise}) {
    const fs::path path = fs::path(place) / "generation_config.json";
    if (!place.empty() && fs::exists(path)) return path;
  }
  return "";
}

ModelConfig load_model_config(const std::string& directory, const std::string& otherwise) {
  const std::string path = fs::path(directory) / "config.json";
  const std::string generation_path = generation_config_path(directory, otherwise);
  const std::string text = read_text_file(path);
  std::string generation;
  if (!generation_path.empty()) {
    generation = read_text_file(generation_path);
    if (generation.empty())
      throw DataError(generation_path + ": not valid JSON: the file is empty");
  }
  return parse_model_config(text, path, generation, generation_path);
}

}  // namespace paceline::io
