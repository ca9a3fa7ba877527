#include "io/checkpoint/model_config_parts.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "io/checkpoint/json_text.hpp"

namespace paceline::io {
namespace {

using nlohmann::json;

constexpr std::int32_t no_window = std::numeric_limits<std::int32_t>::max();

/// Window of a layer that has one, in positions. Null stands for no window, an absent key for the
/// default of transformers.
std::int32_t window_of(const JsonSection& config) {
  constexpr std::int32_t default_window = 4096;
  if (!config.object().contains("sliding_window")) return default_window;
  return config.integer("sliding_window", 1, no_window).value_or(no_window);
}

/// Throws unless the window covers the context. `where`: end of the message, " in ...", or empty.
void require_whole(const JsonSection& config, const ModelConfig& model, std::int32_t window,
                   const std::string& where) {
  if (window >= model.max_position) return;
  const bool said = config.find("sliding_window") != nullptr;
  config.fail("sliding_window",
              "expected null, or at least the context of " + std::to_string(model.max_position) +
                  " tokens (windows are not supported), found " + std::to_string(window) +
                  (said ? "" : " (the default)") + where);
}

// Checks "layer_types" of transformers 5: a kind for each layer.
void check_layer_types(const JsonSection& config, const json& kinds, std::int32_t layers) {
  if (!kinds.is_array()) config.fail_expected("layer_types", "a list of layer kinds");
  if (std::ssize(kinds) != layers) {
    config.fail("layer_types", "expected a kind for each of the " + std::to_string(layers) +
                                   " layers (num_hidden_layers), found " +
                                   std::to_string(kinds.size()));
  }
  for (const json& kind : kinds) {
    if (kind != "full_attention" && kind != "sliding_attention")
      config.fail("layer_types",
                  "expected full_attention or sliding_attention, found " + show_json(kind));
  }
}

// Checks layers with windows: from max_window_layers on, or those that layer_types names.
void check_qwen(const JsonSection& config, const ModelConfig& model) {
  constexpr std::int32_t default_first = 28;
  const bool uses = config.flag("use_sliding_window");
  const std::int32_t window = uses ? window_of(config) : no_window;
  const json* kinds = config.find("layer_types");
  if (kinds == nullptr) {
    const std::int32_t first =
        config.integer("max_window_layers", 0, 1 << 20).value_or(default_first);
    if (first < model.layers)
      require_whole(config, model, window,
                    " in layers from " + std::to_string(first) + " on (max_window_layers)");
    return;
  }
  check_layer_types(config, *kinds, model.layers);
  const auto sliding = std::find(kinds->begin(), kinds->end(), "sliding_attention");
  if (sliding == kinds->end()) return;
  if (window == no_window) {
    config.fail("layer_types",
                "sliding_attention, where use_sliding_window and sliding_window say "
                "that there is no window");
  }
  require_whole(config, model, window,
                " in layer " + std::to_string(sliding - kinds->begin()) + " (layer_types)");
}

}  // namespace

void check_windows(const JsonSection& config, const ModelConfig& model) {
  switch (model.family->windows) {
    case Windows::by_layer:
      check_qwen(config, model);
      return;
    case Windows::all:
      require_whole(config, model, window_of(config), "");
      return;
    case Windows::unknown:
      // transformers computes this family without windows, whatever the file says. If a file has
      // settings of windows, they come from another model.
      if (config.find("sliding_window") != nullptr)
        require_whole(config, model, window_of(config), " in a llama, which has none");
      if (config.flag("use_sliding_window"))
        config.fail_expected("use_sliding_window", "false in a llama, which has no windows");
      if (const json* kinds = config.find("layer_types")) {
        check_layer_types(config, *kinds, model.layers);
        if (std::find(kinds->begin(), kinds->end(), "sliding_attention") != kinds->end())
          config.fail_expected("layer_types", "full_attention alone in a llama");
      }
      return;
  }
}

}  // namespace paceline::io
