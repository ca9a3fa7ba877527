// Reader of an EAGLE-3 or P-EAGLE head. P-EAGLE's mask token has a name in each form of
// config.json: mask_token_id in speculators, pard_token or ptd_token_id in one object (vLLM).
#include "io/checkpoint/eagle3_reader.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "io/checkpoint/head_sections.hpp"
#include "io/checkpoint/head_tensors.hpp"
#include "io/checkpoint/json_text.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::array<const char*, 2> prefixes{"midlayer.", "layers.0."};
constexpr const char* embeddings = "embed_tokens.weight";

std::string find_prefix(const Checkpoint& weights) {
  for (const char* prefix : prefixes) {
    if (weights.shape(std::string(prefix) + "hidden_norm.weight") != nullptr) return prefix;
  }
  fail_tensor(weights, std::string(prefixes[0]) + "hidden_norm.weight",
              fmt::format("missing, and under {} too: is this an EAGLE-3 head?", prefixes[1]));
}

constexpr std::array<const char*, 3> mask_keys{"mask_token_id", "pard_token", "ptd_token_id"};
constexpr const char* ids_key = "eagle_aux_hidden_state_layer_ids";

// Class names of published heads. Their layers are Llama's, or Qwen3's in speculators, whatever the
// target.
constexpr std::array<std::string_view, 8> class_names{
    "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaForCausalLM",
    "Eagle3Speculator",       "Eagle3DraftModel",       "PEagleSpeculator",
    "PEagleDraftModel",       "PeagleLlamaForCausalLM"};

/// Reads one head from the objects of its file.
class Reader {
 public:
  explicit Reader(const HeadSections& sections)
      : sections_(sections),
        head_(sections.head()),
        layer_(sections.layer()),
        eagle_(sections.own()) {}

  Eagle3Config read() {
    check_kind();
    sections_.read_layer(config_);
    read_mask();
    read_norms();
    read_read_layers();
    return config_;
  }

 private:
  void check_kind() {
    sections_.require_class(class_names);
    kind_ = sections_.kind({{"eagle3", "peagle"}});
    if (!sections_.nested()) return;
    config_.layer.qk_norm = layer_.choice("model_type", {{"llama", "qwen3"}}) == "qwen3";
  }

  // The token of P-EAGLE's masked rows. Speculators say by their type whether there are such rows.
  void read_mask() {
    if (kind_ == "eagle3") return;
    for (const char* key : mask_keys) {
      const auto token = sections_.integer(key, 0, config_.layer.vocab - 1);
      if (token && config_.mask_token && *token != *config_.mask_token)
        (head_.find(key) != nullptr ? head_ : layer_)
            .fail_expected(key, std::to_string(*config_.mask_token) + ", the mask token so far");
      if (token) config_.mask_token = token;
    }
    if (kind_ && !config_.mask_token) head_.fail(mask_keys[0], "missing: a peagle head has one");
  }

  void read_norms() {
    if (sections_.nested() && !flag("norm_before_residual")) {
      head_.fail("norm_before_residual",
                 "missing: expected true or false, for vLLM takes it for true and speculators for "
                 "false");
    }
    config_.norm_before_residual = flag("norm_before_residual").value_or(false);
    const auto output = flag("norm_output");
    const auto post_norm = HeadSections::flag(eagle_, "return_hidden_post_norm");
    if (output && post_norm && *output != *post_norm)
      eagle_.fail_expected("return_hidden_post_norm", "the same as norm_output");
    config_.norm_output = output.value_or(post_norm.value_or(false));

    const bool each = flag("fc_norm").value_or(false) || flag("use_aux_norm").value_or(false) ||
                      HeadSections::flag(eagle_, "use_aux_norm").value_or(false);
    const bool joined = flag("norm_before_fc").value_or(false) ||
                        HeadSections::flag(eagle_, "norm_before_fc").value_or(false);
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
      if (HeadSections::flag(eagle_, key).value_or(usual) != usual)
        eagle_.fail_expected(
            key, std::string(usual ? "true" : "false") + " (another head is not supported)");
    }
  }

  // Ids at the top level, vLLM's, name the stream that enters a layer. Ids in eagle_config,
  // SGLang's and SpecForge's, name the stream that leaves a layer and so enters the next.
  void read_read_layers() {
    const std::vector<std::int32_t> entered = HeadSections::layer_ids(head_, ids_key, 0);
    const std::vector<std::int32_t> left = HeadSections::layer_ids(eagle_, ids_key, 1);
    if (!entered.empty() && !left.empty() && entered != left) {
      head_.fail(ids_key,
                 "expected none beside those of eagle_config, or one more each, for here "
                 "they name layers by what enters them and there by what leaves them, "
                 "found " +
                     show_json(*head_.find(ids_key)) + " and " + show_json(*eagle_.find(ids_key)));
    }
    config_.read_layers = entered.empty() ? left : entered;
    const auto count = sections_.integer("num_aux_hidden_states", 1, 64);
    if (count && *count != config_.features()) {
      head_.fail("num_aux_hidden_states",
                 "expected " + std::to_string(config_.features()) + ", as many as " + ids_key +
                     (config_.read_layers.empty() ? " are by default" : " names") + ", found " +
                     std::to_string(*count));
    }
  }

  std::optional<bool> flag(const char* key) const { return sections_.flag(key); }

  const HeadSections& sections_;
  const JsonSection& head_;
  const JsonSection& layer_;
  const JsonSection& eagle_;
  std::optional<std::string> kind_;  ///< in files of speculators
  Eagle3Config config_;
};

}  // namespace

Eagle3Checkpoint load_eagle3(const Families& families, const std::string& directory) {
  require_safetensors(directory);
  Eagle3Checkpoint head;
  head.config = load_eagle3_config(directory);
  head.weights = std::make_unique<Checkpoint>(directory);
  head.config.prefix = find_prefix(*head.weights);
  head.config.own_embeddings = head.weights->shape(embeddings) != nullptr;
  if (head.weights->shape(head.config.prefix + "self_attn.q_norm.weight") != nullptr)
    head.config.layer.qk_norm = true;
  std::set<std::string, std::less<>> names =
      check_head_tensors(families.describe_eagle3(head.config), *head.weights);
  names.insert({"d2t", "t2d"});
  for (const std::string_view name : head.weights->names()) {
    if (!names.contains(name) && !name.ends_with(".rotary_emb.inv_freq"))
      fail_tensor(*head.weights, name,
                  name == "mask_hidden"
                      ? "unexpected without mask_token_id, pard_token or ptd_token_id in "
                        "config.json"
                      : "unexpected; by config.json this head has no such tensor");
  }
  head.config.target_ids = read_target_ids(head.config, *head.weights);
  return head;
}

void require_fits(const std::string& directory, const Eagle3Config& head,
                  const ModelConfig& target) {
  require_fits(directory, head, target, "eagle_aux_hidden_state_layer_ids");
  if (!head.read_layers.empty() || target.layers >= kLeastTargetLayers) return;
  throw DataError(fmt::format(
      "{}: an EAGLE-3 head reads features of three layers; expected a model of at least {} "
      "layers, found {}",
      (std::filesystem::path(directory) / "config.json").string(), kLeastTargetLayers,
      target.layers));
}

Eagle3Config parse_eagle3_config(std::string_view text, const std::string& name) {
  const HeadSections sections(text, name, "eagle_config");
  return Reader(sections).read();
}

Eagle3Config load_eagle3_config(const std::string& directory) {
  const std::string path = std::filesystem::path(directory) / "config.json";
  return parse_eagle3_config(read_text_file(path), path);
}

}  // namespace paceline::io
