#include "io/checkpoint/model_config_reader.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "io/checkpoint/json_section.hpp"
#include "io/checkpoint/json_text.hpp"
#include "io/checkpoint/model_config_parts.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/stored_floats.hpp"

namespace paceline::io {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The family whose name is `found`, the value of `key`.
const Family& known_family(const JsonSection& config, const Families& families, const char* key,
                           const std::string& found, std::string_view Family::*name) {
  std::vector<std::string_view> supported;
  for (const Family* family : families.models) {
    if (found == family->*name) return *family;
    supported.push_back(family->*name);
  }
  config.fail_choice(key, found, supported);
}

// Reads the family. transformers uses "model_type", other programs "architectures"; both must name
// the same model.
const Family& read_family(const JsonSection& config, const Families& families, bool computed) {
  const Family* by_class = nullptr;
  const json* list = config.find("architectures");
  if (list != nullptr && *list != json::array()) {
    by_class = &known_family(config, families, "architectures", *config.only_name("architectures"),
                             &Family::class_name);
  }
  const std::optional<std::string> type = config.text("model_type");
  if (by_class == nullptr) {
    if (!type) config.fail("architectures", "missing, and model_type too");
    return known_family(config, families, "model_type", *type, &Family::model_type);
  }
  if (type && computed && *type != by_class->model_type &&
      (type->empty() || *type != by_class->other_model_type)) {
    config.fail("model_type", "expected " + std::string(by_class->model_type) +
                                  ", for architectures says " + std::string(by_class->class_name) +
                                  ", found " + show_text(*type));
  }
  return *by_class;
}

void read_biases(const JsonSection& config, ModelConfig& model) {
  const Family& family = *model.family;
  const bool attention = family.attention_bias_key && config.flag("attention_bias");
  model.attention_bias = family.qkv_bias || attention;
  model.output_bias = attention;
  model.mlp_bias = family.mlp_bias_key && config.flag("mlp_bias");
  model.qk_norm = family.head_norms;
}

// Reads the dtype: "dtype" in transformers 5, "torch_dtype" in 4; absent means float32.
DType read_dtype(const JsonSection& config) {
  constexpr std::array<std::string_view, 3> names{"bfloat16", "float16", "float32"};
  constexpr std::array<DType, 3> types{DType::bf16, DType::f16, DType::f32};
  std::optional<DType> found;
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (config.find(key) == nullptr) continue;
    std::string name = *config.text(key);
    if (name.starts_with("torch.")) name.erase(0, 6);
    const auto* const known = std::ranges::find(names, name);
    if (known == names.end()) config.fail_choice(key, name, names);
    const DType type = types[known - names.begin()];
    if (found && *found != type) config.fail_expected(key, "the same as dtype");
    found = type;
  }
  return found.value_or(DType::f32);
}

// Reads the stored type. Only fp8 weights with one scale a block are supported quantized.
void read_stored_type(const JsonSection& config, ModelConfig& model) {
  const json* object = config.find_object("quantization_config");
  model.fp8 = object != nullptr;
  model.dtype = model.fp8 ? DType::bf16 : read_dtype(config);
  if (!model.fp8) return;
  const JsonSection quantization(*object, config.file(), "quantization_config.");
  quantization.require({{"quant_method"}});
  quantization.choice("quant_method", {{"fp8"}});
  quantization.choice("fmt", {{"e4m3"}});
  quantization.choice("activation_scheme", {{"dynamic"}});
  quantization.require({{"weight_block_size"}});
  if (*quantization.find("weight_block_size") != json::array({kScaleBlock, kScaleBlock})) {
    const std::string side = std::to_string(kScaleBlock);
    quantization.fail_expected("weight_block_size", "[" + side + ", " + side + "]");
  }
}

constexpr std::int32_t kMostWidth = 1 << 24;  // elements; far above any model

void read_latent(const JsonSection& config, ModelConfig& model) {
  config.require({{"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}});
  model.head_dim = *config.integer("qk_nope_head_dim", 1, kMostWidth);
  model.latent = LatentConfig{.q_rank = config.integer("q_lora_rank", 1, kMostWidth).value_or(0),
                              .kv_rank = *config.integer("kv_lora_rank", 1, kMostWidth),
                              .rope = *config.integer("qk_rope_head_dim", 1, kMostWidth),
                              .value_dim = *config.integer("v_head_dim", 1, kMostWidth)};
  model.next_token_layers = config.integer("num_nextn_predict_layers", 0, model.layers).value_or(0);
  if (model.kv_heads != model.heads) {
    config.fail_expected("num_key_value_heads",
                         "as many as num_attention_heads (" + std::to_string(model.heads) + ")");
  }
  if (model.latent->rope % 2 != 0) config.fail_expected("qk_rope_head_dim", "an even number");
  if (model.latent->value_dim % 2 != 0) config.fail_expected("v_head_dim", "an even number");
  // No published model has these forms.
  if (config.flag("attention_bias")) config.fail_expected("attention_bias", "false");
  if (config.find("rope_interleave") != nullptr && !config.flag("rope_interleave"))
    config.fail_expected("rope_interleave", "true");
}

// Reads the end tokens; nullopt: the key is absent.
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

// Reads "image_token_id", "vision_start_token_id", "audio_token_index" and similar keys. Ids of
// older files may be negative; they are no rows of the vocabulary.
std::vector<TokenId> read_placeholders(const json& root, std::int32_t vocab) {
  constexpr std::array<std::string_view, 9> kinds{"image", "video", "vision", "audio", "speech",
                                                  "boi",   "eoi",   "boa",    "eoa"};
  std::vector<TokenId> ids;
  for (const auto& [key, value] : root.items()) {
    const bool token = key.ends_with("_token_id") || key.ends_with("_token_index");
    const bool of_kind =
        std::ranges::any_of(kinds, [&key](std::string_view kind) { return key.starts_with(kind); });
    if (token && of_kind && value.is_number_integer() && value >= 0 && value < vocab)
      ids.push_back(value.get<TokenId>());
  }
  return ids;
}

/// The object with a decoder's keys.
struct DecoderKeys {
  json keys;
  std::string prefix;  // prefix of the object's keys in messages
};

// Finds the keys of a decoder. For a model that reads pictures, newer files have them in an object
// "text_config"; some keys outside of it are of the decoder too.
DecoderKeys decoder_keys(const JsonSection& config, const Family& family) {
  const json* inner = family.describe_tower != nullptr ? config.find("text_config") : nullptr;
  if (inner == nullptr) return {config.object(), ""};
  if (!inner->is_object()) config.fail_expected("text_config", "an object");
  json text = *inner;
  if (config.flag("tie_word_embeddings")) text["tie_word_embeddings"] = true;
  for (const char* key : {"dtype", "torch_dtype", "eos_token_id", "quantization_config"}) {
    if (const json* whole = config.find(key); whole != nullptr && !text.contains(key))
      text[key] = *whole;
  }
  return {std::move(text), "text_config."};
}

void read_vision(const JsonSection& config, const JsonSection& text, ModelConfig& model) {
  // transformers has another default for this key here than in other families.
  text.require({{"rms_norm_eps"}});
  VisionConfig& vision = model.vision.emplace();
  // If config.json is silent, placeholders are those of published models, as in transformers.
  const auto token = [&](const char* key, TokenId published) {
    return config.integer(key, 0, model.vocab - 1)
        .value_or(published < model.vocab ? published : -1);
  };
  vision.image_token = token("image_token_id", 151655);
  vision.video_token = token("video_token_id", 151656);
  vision.tower = read_tower(config, model.family->tower, model.hidden);
}

/// Reads the sizes and the stored type that models which are computed and models which are only
/// estimated have alike.
ModelConfig read_model_sizes(const JsonSection& config, const Family& family) {
  ModelConfig model;
  model.family = &family;
  read_sizes(config, model);
  model.max_position = config.integer("max_position_embeddings", 1, 1 << 30).value_or(0);
  if (family.latent_attention) read_latent(config, model);
  read_experts(config, model);
  read_biases(config, model);
  model.tied_embeddings = config.flag("tie_word_embeddings");
  read_stored_type(config, model);
  return model;
}

// Throws on a directory that has an adapter's configuration, but no model's.
void require_no_adapter(const std::string& directory) {
  const std::string path = fs::path(directory) / "adapter_config.json";
  if (!fs::exists(path)) return;
  const json root = parse_json_object(read_text_file(path), path);
  const JsonSection adapter(root, path, "");
  const std::string base = adapter.text("base_model_name_or_path").value_or("");
  throw DataError(directory + ": a PEFT adapter alone (adapter_config.json)" +
                  (base.empty() ? "" : ", of the base model " + show_text(base)) +
                  ", without a model's weights; merge it once with python3 -c 'from peft import "
                  "AutoPeftModelForCausalLM as A; A.from_pretrained(\"" +
                  directory +
                  "\", dtype=\"auto\").merge_and_unload().save_pretrained(\"MERGED\")', and "
                  "name that directory");
}

}  // namespace

// Bounds are far above any model of this kind, and keep products of two sizes within 64 bits.
void read_sizes(const JsonSection& config, ModelConfig& model) {
  model.vocab = *config.integer("vocab_size", 2, 1 << 24);
  model.hidden = *config.integer("hidden_size", 2, 1 << 20);
  model.intermediate = *config.integer("intermediate_size", 1, 1 << 24);
  model.layers = *config.integer("num_hidden_layers", 1, 4096);
  model.heads = *config.integer("num_attention_heads", 1, 1 << 14);
  const auto kv_heads = config.integer("num_key_value_heads", 1, model.heads);
  const Family* const family = model.family;  // null: a head's layer, which may lack both keys
  if (!kv_heads && family != nullptr && family->needs_kv_heads) {
    // Other families' default is a fixed number from their first release, wrong for other sizes.
    config.fail("num_key_value_heads", "missing");
  }
  model.kv_heads = kv_heads.value_or(model.heads);
  if (model.heads % model.kv_heads != 0) {
    config.fail_expected("num_key_value_heads",
                         "a divisor of num_attention_heads (" + std::to_string(model.heads) + ")");
  }

  // If a DeepSeek file has head_dim, its meaning differs from release to release.
  if (family != nullptr && family->latent_attention) return;
  if (const auto head_dim = config.integer("head_dim", 2, 4096)) {
    model.head_dim = *head_dim;
    if (model.head_dim % 2 != 0) config.fail_expected("head_dim", "an even number");
  } else {
    if (family != nullptr && family->needs_head_dim) config.fail("head_dim", "missing");
    model.head_dim = model.hidden / model.heads;
    if (model.hidden % model.heads != 0 || model.head_dim % 2 != 0 || model.head_dim > 4096) {
      config.fail_expected("hidden_size", "an even multiple of num_attention_heads (" +
                                              std::to_string(model.heads) +
                                              "), as there is no head_dim");
    }
  }
}

/// Refuses arithmetic that no family here has and no tensor would show.
void check_arithmetic(const JsonSection& config) {
  for (const char* key : {"hidden_act", "hidden_activation"}) config.choice(key, {{"silu"}});
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping",
                          "query_pre_attn_scalar", "rope_local_base_freq"}) {
    if (config.find(key) != nullptr)
      config.fail_expected(key, "null, as in all supported families");
  }
}

ModelConfig parse_model_config(const Families& families, std::string_view text,
                               const std::string& name, std::string_view generation_text,
                               const std::string& generation_name) {
  const json root = parse_json_object(text, name);
  const JsonSection whole(root, name, "");
  const Family& family = read_family(whole, families, true);
  const DecoderKeys decoder = decoder_keys(whole, family);
  const JsonSection config(decoder.keys, name, decoder.prefix);
  config.require({{"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                   "num_attention_heads", "max_position_embeddings"}});
  ModelConfig model = read_model_sizes(config, family);
  check_arithmetic(config);
  if (family.describe_tower != nullptr) read_vision(whole, config, model);
  read_rope(config, model);
  check_windows(config, model);
  model.norm_epsilon = static_cast<float>(config.number("rms_norm_eps", 0, 1).value_or(1e-6));
  if (!(model.norm_epsilon > 0)) config.fail_expected("rms_norm_eps", "a number above 1e-45");

  std::optional<std::vector<TokenId>> eos;
  if (!generation_text.empty()) {
    const json generation = parse_json_object(generation_text, generation_name);
    eos = read_eos(JsonSection(generation, generation_name, ""), model.vocab);
  }
  if (!eos) eos = read_eos(config, model.vocab);
  if (eos) model.eos = *eos;
  model.placeholders = read_placeholders(root, model.vocab);
  if (!model.vision) return model;
  for (const TokenId token : model.vision->placeholders()) {
    if (std::ranges::find(model.placeholders, token) == model.placeholders.end())
      model.placeholders.push_back(token);
  }
  return model;
}

std::string generation_config_path(const std::string& directory, const std::string& otherwise) {
  for (const std::string& place : {directory, otherwise}) {
    const fs::path path = fs::path(place) / "generation_config.json";
    if (!place.empty() && fs::exists(path)) return path;
  }
  return "";
}

ModelConfig parse_model_sizes(const Families& families, std::string_view text,
                              const std::string& name) {
  const json root = parse_json_object(text, name);
  const JsonSection whole(root, name, "");
  const Family& family = read_family(whole, families, false);
  const DecoderKeys decoder = decoder_keys(whole, family);
  const JsonSection config(decoder.keys, name, decoder.prefix);
  config.require({{"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                   "num_attention_heads"}});
  ModelConfig model = read_model_sizes(config, family);
  if (family.describe_tower != nullptr)
    model.vision.emplace().tower = read_tower(whole, family.tower, model.hidden);
  return model;
}

ModelConfig load_model_sizes(const Families& families, const std::string& directory) {
  const std::string path = fs::path(directory) / "config.json";
  return parse_model_sizes(families, read_text_file(path), path);
}

ModelConfig load_model_config(const Families& families, const std::string& directory,
                              const std::string& otherwise) {
  const std::string path = fs::path(directory) / "config.json";
  const std::string generation_path = generation_config_path(directory, otherwise);
  if (!fs::exists(path)) require_no_adapter(directory);
  const std::string text = read_text_file(path);
  std::string generation;
  if (!generation_path.empty()) {
    generation = read_text_file(generation_path);
    if (generation.empty())
      throw DataError(generation_path + ": not valid JSON: the file is empty");
  }
  return parse_model_config(families, text, path, generation, generation_path);
}

}  // namespace paceline::io
