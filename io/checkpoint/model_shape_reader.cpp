#include "io/checkpoint/model_shape_reader.hpp"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/checkpoint/json_section.hpp"
#include "io/checkpoint/json_text.hpp"

namespace paceline::io {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// As far as sizes differ.
enum class Family : std::uint8_t { dense, qwen3_moe, deepseek };

struct FamilyName {
  std::string_view class_name;  // in "architectures"
  Family family;
  const char* model_type;
};
constexpr std::array<FamilyName, 7> family_names{{
    {"LlamaForCausalLM", Family::dense, "llama"},
    {"LlamaForCausalLMEagle3", Family::dense, "llama"},
    {"Qwen2ForCausalLM", Family::dense, "qwen2"},
    {"Qwen2VLForConditionalGeneration", Family::dense, "qwen2_vl"},
    {"Qwen3ForCausalLM", Family::dense, "qwen3"},
    {"Qwen3MoeForCausalLM", Family::qwen3_moe, "qwen3_moe"},
    {"DeepseekV3ForCausalLM", Family::deepseek, "deepseek_v3"},
}};

const FamilyName& read_family(const JsonSection& config) {
  constexpr std::array<const char*, 1> required{"architectures"};
  config.require(required);
  const json& list = *config.find("architectures");
  if (!list.is_array() || list.size() != 1 || !list[0].is_string()) {
    config.fail_expected("architectures", "a list with one name");
  }
  const auto name = list[0].get<std::string>();
  std::array<std::string_view, family_names.size()> known;
  for (std::size_t i = 0; i < known.size(); ++i) {
    known[i] = family_names[i].class_name;
    if (name == known[i]) return family_names[i];
  }
  config.fail_choice("architectures", name, known);
}

constexpr std::int32_t max_width = 1 << 24;  // elements; far above any model
constexpr std::int32_t max_count = 1 << 14;  // heads, layers, experts

void read_sizes(const JsonSection& config, ModelShape& shape) {
  constexpr std::array<const char*, 5> required{"vocab_size", "hidden_size", "intermediate_size",
                                                "num_hidden_layers", "num_attention_heads"};
  config.require(required);
  shape.vocab = *config.integer("vocab_size", 2, max_width);
  // A head's own, of which there are fewer.
  shape.vocab = config.integer("draft_vocab_size", 2, shape.vocab).value_or(shape.vocab);
  shape.hidden = *config.integer("hidden_size", 2, max_width);
  shape.intermediate = *config.integer("intermediate_size", 1, max_width);
  shape.layers = *config.integer("num_hidden_layers", 1, max_count);
  shape.heads = *config.integer("num_attention_heads", 1, max_count);
  shape.kv_heads = config.integer("num_key_value_heads", 1, shape.heads).value_or(shape.heads);
  if (shape.heads % shape.kv_heads != 0) {
    config.fail_expected("num_key_value_heads",
                         "a divisor of num_attention_heads (" + std::to_string(shape.heads) + ")");
  }
  shape.context = config.integer("max_position_embeddings", 1, 1 << 30).value_or(0);
  shape.tied_embeddings = config.flag("tie_word_embeddings");
}

void read_head_dim(const JsonSection& config, ModelShape& shape) {
  if (const auto head_dim = config.integer("head_dim", 1, max_width)) {
    shape.head_dim = *head_dim;
    return;
  }
  if (shape.hidden % shape.heads != 0) {
    config.fail_expected("hidden_size", "a multiple of num_attention_heads (" +
                                            std::to_string(shape.heads) +
                                            "), as there is no head_dim");
  }
  shape.head_dim = shape.hidden / shape.heads;
}

// DeepSeek's head_dim, where a file has one, is something else in every release: not read.
void read_latent(const JsonSection& config, ModelShape& shape) {
  constexpr std::array<const char*, 4> required{"kv_lora_rank", "qk_nope_head_dim",
                                                "qk_rope_head_dim", "v_head_dim"};
  config.require(required);
  shape.head_dim = *config.integer("qk_nope_head_dim", 1, max_width);
  shape.latent = LatentShape{.q_rank = config.integer("q_lora_rank", 1, max_width).value_or(0),
                             .kv_rank = *config.integer("kv_lora_rank", 1, max_width),
                             .rope = *config.integer("qk_rope_head_dim", 1, max_width),
                             .value_dim = *config.integer("v_head_dim", 1, max_width)};
}

// Every layer after the dense ones has experts: steps between them are not known here.
void check_every_layer(const JsonSection& config, const char* key) {
  if (config.integer(key, 1, max_count).value_or(1) != 1) config.fail_expected(key, "1");
}

void read_qwen_experts(const JsonSection& config, ModelShape& shape) {
  constexpr std::array<const char*, 3> required{"num_experts", "num_experts_per_tok",
                                                "moe_intermediate_size"};
  config.require(required);
  check_every_layer(config, "decoder_sparse_step");
  ExpertShape experts;
  experts.routed = *config.integer("num_experts", 1, max_count);
  experts.chosen = *config.integer("num_experts_per_tok", 1, experts.routed);
  experts.width = *config.integer("moe_intermediate_size", 1, max_width);
  if (const json* dense = config.find("mlp_only_layers")) {
    if (!dense->is_array() || dense->size() > static_cast<std::size_t>(shape.layers)) {
      config.fail_expected("mlp_only_layers", "a list of layers");
    }
    experts.dense_layers = static_cast<std::int32_t>(dense->size());
  }
  shape.experts = experts;
}

void read_deepseek_experts(const JsonSection& config, ModelShape& shape) {
  constexpr std::array<const char*, 4> required{"n_routed_experts", "num_experts_per_tok",
                                                "moe_intermediate_size", "first_k_dense_replace"};
  config.require(required);
  check_every_layer(config, "moe_layer_freq");
  ExpertShape experts;
  experts.routed = *config.integer("n_routed_experts", 1, max_count);
  experts.chosen = *config.integer("num_experts_per_tok", 1, experts.routed);
  experts.shared = config.integer("n_shared_experts", 0, max_count).value_or(0);
  experts.width = *config.integer("moe_intermediate_size", 1, max_width);
  experts.dense_layers = *config.integer("first_k_dense_replace", 0, shape.layers);
  shape.experts = experts;
}

// Quantized weights are counted as what most of them are; their scales are less than a hundredth.
double read_bytes(const JsonSection& config) {
  if (const json* object = config.find("quantization_config")) {
    if (!object->is_object()) config.fail_expected("quantization_config", "an object");
    const JsonSection quantization(*object, config.file(), "quantization_config.");
    constexpr std::array<std::string_view, 1> methods{"fp8"};
    const std::string method = quantization.text("quant_method").value_or("");
    if (method != methods[0]) quantization.fail_choice("quant_method", method, methods);
    return 1;
  }
  constexpr std::array<std::string_view, 3> names{"bfloat16", "float16", "float32"};
  const char* key = config.find("dtype") != nullptr ? "dtype" : "torch_dtype";
  const std::string name = config.text(key).value_or("float32");  // as in transformers
  if (name == names[2]) return 4;
  if (name != names[0] && name != names[1]) config.fail_choice(key, name, names);
  return 2;
}

}  // namespace

ModelShape parse_model_shape(std::string_view text, const std::string& file, std::string name) {
  const json root = parse_json_object(text, file);
  const JsonSection config(root, file, "");
  const auto& [class_name, family, model_type] = read_family(config);
  ModelShape shape;
  shape.name = std::move(name);
  shape.family = model_type;
  read_sizes(config, shape);
  if (family == Family::deepseek) {
    read_latent(config, shape);
    read_deepseek_experts(config, shape);
  } else {
    read_head_dim(config, shape);
    if (family == Family::qwen3_moe) read_qwen_experts(config, shape);
  }
  shape.bytes_per_parameter = read_bytes(config);
  return shape;
}

ModelShape load_model_shape(const std::string& directory) {
  const fs::path path = fs::path(directory) / "config.json";
  const fs::path named = fs::path(directory).lexically_normal();
  const fs::path last = named.has_filename() ? named.filename() : named.parent_path().filename();
  return parse_model_shape(read_text_file(path), path, last);
}

}  // namespace paceline::io
