#include "io/checkpoint/head_sections.hpp"

#include <algorithm>

#include "io/checkpoint/json_text.hpp"
#include "io/checkpoint/model_config_parts.hpp"

namespace paceline::io {
namespace {

using nlohmann::json;

constexpr const char* layer_key = "transformer_layer_config";
constexpr const char* kind_key = "speculators_model_type";

const json& object_of(const JsonSection& config, const char* key) {
  const json* object = config.find_object(key);
  if (object == nullptr) config.fail(key, "missing");
  return *object;
}

}  // namespace

HeadSections::HeadSections(std::string_view text, const std::string& name, const char* own)
    : root_(parse_json_object(text, name)),
      head_(root_, name, ""),
      nested_(head_.find(layer_key) != nullptr || head_.find(kind_key) != nullptr),
      layer_(nested_ ? object_of(head_, layer_key) : root_, name,
             nested_ ? std::string(layer_key) + "." : ""),
      own_(head_.find(own) != nullptr ? object_of(head_, own) : none_, name,
           std::string(own) + ".") {}

void HeadSections::require_class(std::span<const std::string_view> names) const {
  const auto name = head_.only_name("architectures");
  if (name && std::ranges::find(names, *name) == names.end())
    head_.fail_choice("architectures", *name, names);
}

std::optional<std::string> HeadSections::kind(std::span<const std::string_view> kinds) const {
  const auto kind = head_.text(kind_key);
  if (nested_ && !kind) head_.fail(kind_key, "missing");
  if (kind) head_.choice(kind_key, kinds);
  return kind;
}

void HeadSections::read_layer(PublishedHead& head) const {
  ModelConfig& layer = head.layer;
  // max_position_embeddings is not required: heads are used at any position, whatever it says.
  layer_.require({{"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                   "num_attention_heads"}});
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
  head.target_hidden = integer("target_hidden_size", 2, 1 << 20).value_or(layer.hidden);
  head.draft_vocab = integer("draft_vocab_size", 2, layer.vocab).value_or(layer.vocab);
}

void HeadSections::check_full_attention() const {
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

std::vector<std::int32_t> HeadSections::layer_ids(const JsonSection& section, const char* key,
                                                  std::int32_t more) {
  constexpr std::int32_t most = 4096;
  const json* list = section.find(key);
  std::vector<std::int32_t> layers;
  if (list == nullptr) return layers;
  const auto fail = [&] { section.fail_expected(key, "a list of layers of the model, ascending"); };
  if (!list->is_array() || list->size() > 64) fail();
  for (const json& id : *list) {
    if (!id.is_number_integer() || id < 0 || id > most) fail();
    layers.push_back(id.get<std::int32_t>() + more);
    if (layers.size() > 1 && layers.back() <= layers[layers.size() - 2]) fail();
  }
  return layers;
}

std::optional<std::int32_t> HeadSections::integer(const char* key, std::int32_t low,
                                                  std::int32_t high) const {
  const auto outside = head_.integer(key, low, high);
  return layer_.either(key, layer_.integer(key, low, high), outside);
}

std::optional<bool> HeadSections::flag(const char* key) const {
  const auto outside = flag(head_, key);
  return layer_.either(key, flag(layer_, key), outside);
}

std::optional<bool> HeadSections::flag(const JsonSection& section, const char* key) {
  if (section.find(key) == nullptr) return std::nullopt;
  return section.flag(key);
}

}  // namespace paceline::io
