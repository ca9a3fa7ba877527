// config.json of an EAGLE-3 or P-EAGLE head. SafeAILab, SpecForge and SGLang write it as one
// object; vLLM's speculators put the layers into an object of their own. P-EAGLE's mask token has a
// name in each: mask_token_id in speculators, pard_token or ptd_token_id in one object (vLLM).
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>

#include "io/checkpoint/json_section.hpp"
#include "io/checkpoint/json_text.hpp"
#include "io/checkpoint/model_config_parts.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "io/checkpoint/rope_reader.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

using nlohmann::json;

constexpr const char* layer_key = "transformer_layer_config";
constexpr const char* kind_key = "speculators_model_type";
constexpr std::array<const char*, 3> mask_keys{"mask_token_id", "pard_token", "ptd_token_id"};
constexpr const char* ids_key = "eagle_aux_hidden_state_layer_ids";

// Class names of published heads. Their layers are Llama's, or Qwen3's in speculators, whatever the
// target.
constexpr std::array<std::string_view, 8> class_names{
    "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaForCausalLM",
    "Eagle3Speculator",       "Eagle3DraftModel",       "PEagleSpeculator",
    "PEagleDraftModel",       "PeagleLlamaForCausalLM"};

void check_class(const JsonSection& config) {
  const json* list = config.find("architectures");
  if (list == nullptr) return;
  if (!list->is_array() || list->size() != 1 || !(*list)[0].is_string()) {
    config.fail_expected("architectures", "a list with one name");
  }
  const auto name = (*list)[0].get<std::string>();
  if (std::find(class_names.begin(), class_names.end(), name) == class_names.end())
    config.fail_choice("architectures", name, class_names);
}

/// Reads one head. `head`: the whole object. `layer`: the object with the layer's sizes, which may
/// be the same. `eagle`: the object "eagle_config", which may be empty.
class Reader {
 public:
  Reader(const JsonSection& head, const JsonSection& layer, const JsonSection& eagle, bool nested)
      : head_(head), layer_(layer), eagle_(eagle), nested_(nested) {}

  Eagle3Config read() {
    check_kind();
    read_layer();
    read_vocabulary();
    read_mask();
    read_norms();
    read_read_layers();
    return config_;
  }

 private:
  void check_kind() {
    check_class(head_);
    constexpr std::array<std::string_view, 2> kinds{"eagle3", "peagle"};
    const auto kind = head_.text(kind_key);
    if (nested_ && !kind) head_.fail(kind_key, "missing");
    if (kind && *kind != kinds[0] && *kind != kinds[1]) head_.fail_choice(kind_key, *kind, kinds);
    if (!nested_) return;
    constexpr std::array<std::string_view, 2> types{"llama", "qwen3"};
    const std::string type = layer_.text("model_type").value_or("llama");
    if (type != types[0] && type != types[1]) layer_.fail_choice("model_type", type, types);
    config_.layer.qk_norm = type == types[1];
  }

  void read_layer() {
    ModelConfig& layer = config_.layer;
    // max_position_embeddings is not required: heads are used at any position, whatever it says.
    constexpr std::array<const char*, 5> required{"vocab_size", "hidden_size", "intermediate_size",
                                                  "num_hidden_layers", "num_attention_heads"};
    layer_.require(required);
    read_sizes(layer_, layer);
    layer.max_position = layer_.integer("max_position_embeddings", 1, 1 << 30).value_or(0);
    check_arithmetic(layer_);
    if (layer_.find("quantization_config") != nullptr)
      layer_.fail("quantization_config", "quantized heads are not supported");
    check_full_attention();
    read_rope(layer_, layer);
    layer.norm_epsilon = static_cast<float>(layer_.number("rms_norm_eps", 0, 1).value_or(1e-6));
    for (const char* bias : {"attention_bias", "mlp_bias", "bias"}) {
      if (layer_.flag(bias)) layer_.fail_expected(bias, "false (a head has no biases)");
    }
    const json* scale = layer_.find("logit_scale");
    if (scale != nullptr && *scale != 1.0) layer_.fail_expected("logit_scale", "1");
  }

  void check_full_attention() const {
    if (layer_.flag("use_sliding_window"))
      layer_.fail_expected("use_sliding_window", "false (windows are not supported)");
    const json* kinds = layer_.find("layer_types");
    if (kinds == nullptr) return;
    if (!kinds->is_array()) layer_.fail_expected("layer_types", "a list of layer kinds");
    for (const json& kind : *kinds) {
      if (kind != "full_attention")
        layer_.fail("layer_types", "expected full_attention alone, found " + show_json(kind));
    }
  }

  void read_vocabulary() {
    const std::int32_t vocab = config_.layer.vocab;
    config_.target_hidden =
        integer("target_hidden_size", 2, 1 << 20).value_or(config_.layer.hidden);
    config_.draft_vocab = integer("draft_vocab_size", 2, vocab).value_or(vocab);
  }

  // The token of P-EAGLE's masked rows. Speculators say by their type whether there are such rows.
  void read_mask() {
    const auto kind = head_.text(kind_key);
    if (kind == "eagle3") return;
    for (const char* key : mask_keys) {
      const auto token = integer(key, 0, config_.layer.vocab - 1);
      if (token && config_.mask_token && *token != *config_.mask_token)
        (head_.find(key) != nullptr ? head_ : layer_)
            .fail_expected(key, std::to_string(*config_.mask_token) + ", the mask token so far");
      if (token) config_.mask_token = token;
    }
    if (kind && !config_.mask_token) head_.fail(mask_keys[0], "missing: a peagle head has one");
  }

  void read_norms() {
    if (nested_ && !flag("norm_before_residual")) {
      head_.fail("norm_before_residual",
                 "missing: expected true or false, for vLLM takes it for true and speculators for "
                 "false");
    }
    config_.norm_before_residual = flag("norm_before_residual").value_or(false);
    const auto output = flag("norm_output");
    const auto post_norm = flag(eagle_, "return_hidden_post_norm");
    if (output && post_norm && *output != *post_norm)
      eagle_.fail_expected("return_hidden_post_norm", "the same as norm_output");
    config_.norm_output = output.value_or(post_norm.value_or(false));

    const bool each = flag("fc_norm").value_or(false) || flag("use_aux_norm").value_or(false) ||
                      flag(eagle_, "use_aux_norm").value_or(false);
    const bool joined =
        flag("norm_before_fc").value_or(false) || flag(eagle_, "norm_before_fc").value_or(false);
    if (each && joined)
      head_.fail("fc_norm", "expected one of fc_norm and norm_before_fc, found both");
    config_.feature_norm = each     ? FeatureNorm::each
                           : joined ? FeatureNorm::joined
                                    : FeatureNorm::none;
    // Further options of a head, under NVIDIA's names.
    for (const auto& [key, usual] : {std::pair{"use_aux_hidden_state", true},
                                     {"use_input_layernorm_in_first_layer", true},
                                     {"use_last_layernorm", true},
                                     {"use_mtp_layernorm", false},
                                     {"eh_proj_before_attn", false}}) {
      if (flag(eagle_, key).value_or(usual) != usual)
        eagle_.fail_expected(
            key, std::string(usual ? "true" : "false") + " (another head is not supported)");
    }
  }

  // Ids at the top level, vLLM's, name the stream that enters a layer. Ids in eagle_config,
  // SGLang's and SpecForge's, name the stream that leaves a layer and so enters the next.
  void read_read_layers() {
    const std::vector<std::int32_t> entered = ids(head_, 0);
    const std::vector<std::int32_t> left = ids(eagle_, 1);
    if (!entered.empty() && !left.empty() && entered != left) {
      head_.fail(ids_key,
                 "expected none beside those of eagle_config, or one more each, for here "
                 "they name layers by what enters them and there by what leaves them, "
                 "found " +
                     show_json(*head_.find(ids_key)) + " and " + show_json(*eagle_.find(ids_key)));
    }
    config_.read_layers = entered.empty() ? left : entered;
    const auto count = integer("num_aux_hidden_states", 1, 64);
    if (count && *count != config_.features()) {
      head_.fail("num_aux_hidden_states",
                 "expected " + std::to_string(config_.features()) + ", as many as " + ids_key +
                     (config_.read_layers.empty() ? " are by default" : " names") + ", found " +
                     std::to_string(*count));
    }
  }

  /// Layer ids of one object, with `more` added to each; empty: it names none.
  static std::vector<std::int32_t> ids(const JsonSection& section, std::int32_t more) {
    constexpr std::int32_t most = 4096;
    const json* list = section.find(ids_key);
    std::vector<std::int32_t> layers;
    if (list == nullptr) return layers;
    const auto fail = [&] {
      section.fail_expected(ids_key, "a list of layers of the model, ascending");
    };
    if (!list->is_array() || list->size() > 64) fail();
    for (const json& id : *list) {
      if (!id.is_number_integer() || id < 0 || id > most) fail();
      layers.push_back(id.get<std::int32_t>() + more);
      if (layers.size() > 1 && layers.back() <= layers[layers.size() - 2]) fail();
    }
    return layers;
  }

  // Reads a key of either object. If both have it, the values must be the same.
  template <class T, class Get>
  std::optional<T> either(const char* key, const Get& get) const {
    const std::optional<T> outer = get(head_);
    if (!nested_) return outer;
    const std::optional<T> inner = get(layer_);
    if (outer && inner && *outer != *inner) {
      layer_.fail_expected(key,
                           "the same as " + std::string(key) + " outside, " + json(*outer).dump());
    }
    return outer ? outer : inner;
  }
  std::optional<std::int32_t> integer(const char* key, std::int32_t low, std::int32_t high) const {
    return either<std::int32_t>(
        key, [&](const JsonSection& section) { return section.integer(key, low, high); });
  }
  std::optional<bool> flag(const char* key) const {
    return either<bool>(key, [&](const JsonSection& section) { return flag(section, key); });
  }
  static std::optional<bool> flag(const JsonSection& section, const char* key) {
    if (section.find(key) == nullptr) return std::nullopt;
    return section.flag(key);
  }

  const JsonSection& head_;
  const JsonSection& layer_;
  const JsonSection& eagle_;
  bool nested_;
  Eagle3Config config_;
};

const json& object_of(const JsonSection& config, const char* key) {
  const json* object = config.find(key);
  if (object == nullptr) config.fail(key, "missing");
  if (!object->is_object()) config.fail_expected(key, "an object");
  return *object;
}

}  // namespace

Eagle3Config parse_eagle3_config(std::string_view text, const std::string& name) {
  const json root = parse_json_object(text, name);
  const JsonSection head(root, name, "");
  const bool nested =
      head.find(layer_key) != nullptr || head.find("speculators_model_type") != nullptr;
  const JsonSection layer(nested ? object_of(head, layer_key) : root, name,
                          nested ? std::string(layer_key) + "." : "");
  const json none = json::object();
  const bool has_eagle = head.find("eagle_config") != nullptr;
  const JsonSection eagle(has_eagle ? object_of(head, "eagle_config") : none, name,
                          "eagle_config.");
  return Reader(head, layer, eagle, nested).read();
}

Eagle3Config load_eagle3_config(const std::string& directory) {
  const std::string path = std::filesystem::path(directory) / "config.json";
  return parse_eagle3_config(read_text_file(path), path);
}

}  // namespace paceline::io
