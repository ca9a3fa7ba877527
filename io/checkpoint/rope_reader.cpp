#include "io/checkpoint/model_config_parts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "io/checkpoint/json_text.hpp"

namespace paceline::io {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 5> rope_types{"default", "linear", "dynamic", "yarn",
                                                     "llama3"};
constexpr std::int32_t most_positions = 1 << 30;
// Bounds of rope_theta: frequencies go up to 1 / rope_theta, angles to 2^30 times that, in fp32.
constexpr double min_theta = 1e-20;
constexpr double max_theta = 1e15;

// Reads "rope_type", or its first name "type". Absent means default, and so does mrope in models
// that read pictures.
std::string read_type(const JsonSection& rope, bool vision) {
  auto type = rope.text("rope_type");
  if (vision && type == "mrope") type = "default";
  auto old_type = rope.text("type");
  if (vision && old_type == "mrope") old_type = "default";
  if (type && old_type && *type != *old_type) {
    rope.fail_expected("type", "the same as rope_type, " + show_text(*type));
  }
  std::string name = type ? *type : old_type.value_or("default");
  if (std::find(rope_types.begin(), rope_types.end(), name) == rope_types.end())
    rope.fail_choice(type ? "rope_type" : "type", name, rope_types);
  return name;
}

double read_factor(const JsonSection& rope) {
  rope.require({{"factor"}});
  const double factor = *rope.number("factor", 0, 1e6);
  if (!(factor >= 1)) rope.fail_expected("factor", "at least 1");
  return factor;
}

// Reads the context length of the first training, inside the object or outside.
std::optional<std::int32_t> read_original(const JsonSection& config, const JsonSection& rope) {
  constexpr const char* key = "original_max_position_embeddings";
  const auto outside = config.integer(key, 1, most_positions);
  return rope.either(key, rope.integer(key, 1, most_positions), outside);
}

Llama3RopeScaling read_llama3(const JsonSection& config, const JsonSection& rope) {
  constexpr std::array<const char*, 4> required{"factor", "low_freq_factor", "high_freq_factor",
                                                "original_max_position_embeddings"};
  const auto original = read_original(config, rope);
  rope.require(std::span(required).first(original ? 3 : 4));
  Llama3RopeScaling scaling;
  scaling.factor = static_cast<float>(read_factor(rope));
  scaling.low_freq_factor = static_cast<float>(*rope.number("low_freq_factor", 0, 1e6));
  scaling.high_freq_factor = static_cast<float>(*rope.number("high_freq_factor", 0, 1e6));
  scaling.original_max_position = *original;
  if (!(scaling.high_freq_factor > scaling.low_freq_factor) || !(scaling.low_freq_factor > 0)) {
    rope.fail_expected("high_freq_factor", "more than low_freq_factor");
  }
  return scaling;
}

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

/// Reads YaRN's scaling, and the scale that it gives to scores of latent attention.
YarnRopeScaling read_yarn(const JsonSection& config, const JsonSection& rope, ModelConfig& model) {
  YarnRopeScaling scaling;
  scaling.factor = read_factor(rope);
  const auto original = read_original(config, rope);
  if (!original && model.max_position == 0)
    rope.fail("original_max_position_embeddings", "missing");
  scaling.original_max_position = original.value_or(model.max_position);
  // 0 stands for the default, as in transformers.
  const auto positive = [&](const char* key, double otherwise) {
    const json* value = rope.find(key);
    return value == nullptr || *value == 0 ? otherwise : *rope.number(key, 0, 1e6);
  };
  scaling.beta_fast = positive("beta_fast", 32);
  scaling.beta_slow = positive("beta_slow", 1);
  if (!(scaling.beta_fast >= scaling.beta_slow)) {
    const char* key = rope.find("beta_fast") != nullptr ? "beta_fast" : "beta_slow";
    rope.fail_expected(key, "a beta_fast (by default 32) of at least beta_slow (by default 1)");
  }
  if (!(model.rope_theta > 1))
    rope.fail("rope_type",
              "yarn needs a rope_theta above 1, found " + json(model.rope_theta).dump());
  const double mscale = positive("mscale", 0);
  const double mscale_all = positive("mscale_all_dim", 0);
  const auto given = rope.number("attention_factor", 0, 1e6);
  scaling.attention_factor =
      given ? *given
      : mscale > 0 && mscale_all > 0
          ? yarn_scale(scaling.factor, mscale) / yarn_scale(scaling.factor, mscale_all)
          : yarn_scale(scaling.factor, 1);
  if (model.latent && mscale_all > 0) {
    const double scale = yarn_scale(scaling.factor, mscale_all);
    model.latent->score_scale = static_cast<float>(scale * scale);
  }
  scaling.truncate = rope.find("truncate") == nullptr || rope.flag("truncate");
  return scaling;
}

void require_trained_context(const JsonSection& config, const JsonSection& rope,
                             const ModelConfig& model) {
  const auto original = read_original(config, rope);
  if (!original || model.max_position == 0 || *original == model.max_position) return;
  const bool inside = rope.find("original_max_position_embeddings") != nullptr;
  (inside ? rope : config)
      .fail_expected("original_max_position_embeddings",
                     "none beside rope_type dynamic, or max_position_embeddings, " +
                         std::to_string(model.max_position));
}

// Stretches the context by vLLM's rule: max_position_embeddings is the context before stretching;
// with YaRN it may be before or after.
void stretch_context(const JsonSection& rope, ModelConfig& model) {
  double positions = model.max_position;
  if (const auto* linear = std::get_if<LinearRopeScaling>(&model.rope_scaling))
    positions *= linear->factor;
  if (const auto* yarn = std::get_if<YarnRopeScaling>(&model.rope_scaling)) {
    if (model.max_position > 0)
      positions = std::max(positions, yarn->original_max_position * yarn->factor);
  }
  if (positions > most_positions)
    rope.fail_expected("factor",
                       "a context of at most " + std::to_string(most_positions) + " tokens");
  model.max_position = static_cast<std::int32_t>(positions);
}

void read_scaling(const JsonSection& config, const JsonSection& rope, ModelConfig& model) {
  const std::string type = read_type(rope, model.vision.has_value());
  if (type == "linear") model.rope_scaling = LinearRopeScaling{read_factor(rope)};
  if (type == "dynamic") {
    model.rope_scaling = DynamicRopeScaling{read_factor(rope)};
    require_trained_context(config, rope, model);
  }
  if (type == "yarn") model.rope_scaling = read_yarn(config, rope, model);
  if (type == "llama3") model.rope_scaling = read_llama3(config, rope);
}

// Removes the differences between the schemas: one name for the type, and no nulls.
json plain(json rope) {
  if (!rope.is_object()) return rope;
  rope.erase("rope_theta");
  for (auto item = rope.begin(); item != rope.end();)
    item = item->is_null() ? rope.erase(item) : std::next(item);
  if (const auto type = rope.find("type"); type != rope.end()) {
    if (!rope.contains("rope_type")) rope["rope_type"] = *type;
    if (rope["rope_type"] == rope["type"]) rope.erase("type");
  }
  return rope;
}

// A file for both versions has both objects; only the newer object holds rope_theta.
void check_same(const JsonSection& config) {
  const json* newer = config.find("rope_parameters");
  const json* older = config.find("rope_scaling");
  if (newer != nullptr && older != nullptr && plain(*newer) != plain(*older))
    config.fail_expected("rope_scaling", "nothing beside rope_parameters, or the same");
}

// Reads how a head's pairs of elements are divided among the three parts of a row's position.
void read_sections(const JsonSection& config, const JsonSection& rope, ModelConfig& model) {
  // transformers has another default for this key here than in other families.
  if (config.find("rope_theta") == nullptr) rope.require({{"rope_theta"}});
  rope.require({{"mrope_section"}});
  const json& list = *rope.find("mrope_section");
  const std::int32_t half = model.rope_dim() / 2;
  std::array<std::int32_t, 3>& sections = model.vision->rope_sections;
  std::int32_t sum = 0;
  const auto valid = [half](const json& pairs) {
    return pairs.is_number_integer() && pairs >= 0 && pairs <= half;
  };
  const bool listed = list.is_array() && list.size() == sections.size() &&
                      std::all_of(list.begin(), list.end(), valid);
  for (std::size_t i = 0; listed && i < sections.size(); ++i)
    sum += sections[i] = list[i].get<std::int32_t>();
  if (sum != half) {
    rope.fail_expected("mrope_section",
                       "three whole numbers that add up to half a head, " + std::to_string(half));
  }
}

void check_whole(const JsonSection& section) {
  const json* partial = section.find("partial_rotary_factor");
  if (partial != nullptr && *partial != 1.0) section.fail_expected("partial_rotary_factor", "1");
}

}  // namespace

void read_rope(const JsonSection& config, ModelConfig& model) {
  const auto outer_theta = config.number("rope_theta", min_theta, max_theta);
  if (outer_theta) model.rope_theta = *outer_theta;
  check_same(config);
  check_whole(config);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const json* object = config.find(key);
    if (object == nullptr) continue;
    if (!object->is_object()) config.fail_expected(key, "an object or null");
    const JsonSection rope(*object, config.file(), std::string(key) + ".");
    const auto theta = rope.number("rope_theta", min_theta, max_theta);
    model.rope_theta = rope.either("rope_theta", theta, outer_theta).value_or(model.rope_theta);
    for (const auto& item : object->items()) {
      // Models with several kinds of attention have one object for each kind of layer.
      if (item.value().is_object()) rope.fail_expected(item.key(), "a value, not an object");
    }
    check_whole(rope);
  }
  // If both objects are there, they are equal, and the newer one is read.
  const char* key = config.find("rope_parameters") != nullptr ? "rope_parameters" : "rope_scaling";
  if (const json* object = config.find(key)) {
    const JsonSection rope(*object, config.file(), std::string(key) + ".");
    read_scaling(config, rope, model);
    stretch_context(rope, model);
    if (model.vision) read_sections(config, rope, model);
  } else if (model.vision) {
    config.require({{"rope_scaling"}});
  }
}

}  // namespace paceline::io
