#include "io/run/manifest.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/run/manifest_json.hpp"
#include "io/run/shard_format.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/parse_number.hpp"

namespace paceline::io {
namespace {

/// The double that prints as the float does: 0.7, not 0.699999988. It converts back exactly.
double shortest(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double result = 0;
  std::from_chars(text, end, result);
  return result;
}

constexpr TokenId kMostTokens = 1 << 24;          // in a vocabulary
constexpr std::uint64_t kMostPrompts = 1U << 28;  // limit of memory for their numbers of samples

/// Ranges [[first, last], ...] of ascending ids, which may be many but mostly contiguous.
Json ranges_of(std::span<const TokenId> ids) {
  Json ranges = Json::array();
  for (const TokenId id : ids) {
    if (!ranges.empty() && ranges.back()[1] == id - 1) {
      ranges.back()[1] = id;
    } else {
      ranges.push_back({id, id});
    }
  }
  return ranges;
}
std::vector<TokenId> ids_of(const Json& ranges) {
  std::vector<TokenId> ids;
  for (const Json& range : ranges) {
    const auto first = range.at(0).get<TokenId>();
    const auto last = range.at(1).get<TokenId>();
    if (first < 0 || last < first || last >= kMostTokens)
      throw IoError("masked tokens that are none: " + range.dump());
    for (TokenId id = first; id <= last; ++id) ids.push_back(id);
  }
  return ids;
}

Json sampling_json(const SamplingParams& s) {
  Json json;
  json["temperature"] = shortest(s.temperature);
  json["top_k"] = s.top_k;
  json["top_p"] = shortest(s.top_p);
  json["min_p"] = shortest(s.min_p);
  json["min_tokens"] = s.min_tokens;
  json["max_tokens"] = s.max_tokens;
  json["ignore_eos"] = s.ignore_eos;
  json["stop_ids"] = s.stop_ids;
  json["stop_strings"] = s.stop_strings;
  json["masked"] = ranges_of(s.masked);
  json["keep_masks"] = s.keep_masks;
  // The text of a run that does not use these is the same as before they existed.
  if (s.keep_routing) json["keep_routing"] = true;
  if (s.logprobs > 0) json["logprobs"] = s.logprobs;
  if (s.repetition_penalty != 1) json["repetition_penalty"] = shortest(s.repetition_penalty);
  if (s.presence_penalty != 0) json["presence_penalty"] = shortest(s.presence_penalty);
  if (s.frequency_penalty != 0) json["frequency_penalty"] = shortest(s.frequency_penalty);
  for (const LogitBias& bias : s.logit_bias)
    json["logit_bias"][std::to_string(bias.token)] = shortest(bias.bias);
  return json;
}

SamplingParams sampling_from(const Json& json) {
  SamplingParams s;
  s.temperature = static_cast<float>(json.at("temperature").get<double>());
  json.at("top_k").get_to(s.top_k);
  s.top_p = static_cast<float>(json.at("top_p").get<double>());
  s.min_p = static_cast<float>(json.at("min_p").get<double>());
  json.at("min_tokens").get_to(s.min_tokens);
  json.at("max_tokens").get_to(s.max_tokens);
  json.at("ignore_eos").get_to(s.ignore_eos);
  json.at("stop_ids").get_to(s.stop_ids);
  json.at("stop_strings").get_to(s.stop_strings);
  if (json.contains("masked")) s.masked = ids_of(json.at("masked"));  // absent in older files: none
  if (json.contains("keep_masks")) json.at("keep_masks").get_to(s.keep_masks);
  if (json.contains("keep_routing")) json.at("keep_routing").get_to(s.keep_routing);
  s.logprobs = json.value("logprobs", 0);
  s.repetition_penalty = json.value("repetition_penalty", 1.0F);
  s.presence_penalty = json.value("presence_penalty", 0.0F);
  s.frequency_penalty = json.value("frequency_penalty", 0.0F);
  if (json.contains("logit_bias")) {
    for (const auto& [token, bias] : json.at("logit_bias").items()) {
      const auto id = parse_number<TokenId>(token);
      if (!id || *id < 0) throw IoError("a bias of a token that is none: " + token);
      s.logit_bias.push_back({*id, bias.get<float>()});
    }
    std::ranges::sort(s.logit_bias, {}, &LogitBias::token);
  }
  return s;
}

/// Dumps JSON. Invalid UTF-8, perhaps in a path, is stored with replacement characters.
std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::string> difference(const std::string& name, const Json& earlier,
                                      const Json& now) {
  const std::string was = dump(earlier);
  const std::string is = dump(now);
  if (was == is) return std::nullopt;
  return name + ": " + was + ", now " + is;
}

}  // namespace

Json manifest_to_json(const RunManifest& m) {
  Json json;
  json["schema_version"] = m.schema_version;
  json["program_version"] = m.program_version;
  json["model_fingerprint"] = m.model_fingerprint;
  json["vocabulary"] = m.vocabulary;
  json["prompts_fingerprint"] = m.prompts_fingerprint;
  json["prompts"] = m.prompts;
  json["samples"] = m.samples;
  json["seed"] = m.sampling.seed;
  json["weight_version"] = m.weight_version;
  json["backend"] = m.backend;
  json["isa"] = m.isa;
  json["dtype"] = name_of(m.dtype);
  json["sampling"] = sampling_json(m.sampling);
  if (m.sampling.keep_routing) {
    json["sampling"]["routed_layers"] = m.routing.layers;
    json["sampling"]["experts_chosen"] = m.routing.chosen;
    json["sampling"]["experts"] = m.routing.experts;
  }
  if (m.stops) json["sampling"]["stops"] = *m.stops;
  if (!m.own_samples.empty()) {  // [[samples, number of prompts in a row], ...]
    Json& runs = json["sampling"]["samples"] = Json::array();
    for (const std::uint32_t samples : m.own_samples) {
      if (runs.empty() || runs.back()[0] != samples) runs.push_back({samples, 0});
      runs.back()[1] = runs.back()[1].get<std::uint64_t>() + 1;
    }
  }
  if (!m.by_line.empty()) {  // else the text is as before lines had parameters
    json["sampling"]["by_line"] = m.by_line;
    json["sampling"]["longest_response"] = m.longest_response;
  }
  if (m.environment) {
    json["sampling"]["environment"] = {{"command", m.environment->command},
                                       {"max_turns", m.environment->max_turns},
                                       {"max_tokens_turn", m.environment->max_tokens_turn}};
  }
  if (!m.begun.empty()) json["sampling"]["begun"] = m.begun;
  if (m.choice) {
    Json& choice =
        json["sampling"]["dynamic"] = {{"enough", m.choice->enough}, {"filter", "mixed_rewards"}};
    if (m.choice->shuffled) choice["shuffled"] = true;
    if (m.choice->prompts > 0) {
      choice["prompts"] = m.choice->prompts;
      choice["dropped"] = m.choice->dropped;
      if (!m.choice->fingerprint.empty()) choice["prompts_fingerprint"] = m.choice->fingerprint;
    }
  }
  json["config"] = m.config_text;
  return json;
}

RunManifest manifest_of_json(const Json& json, const std::string& name) {
  try {
    RunManifest m;
    json.at("schema_version").get_to(m.schema_version);
    if (m.schema_version != kSchemaVersion) {
      throw IoError(name + ": schema version " + std::to_string(m.schema_version) +
                    ", but this program reads version " + std::to_string(kSchemaVersion));
    }
    json.at("program_version").get_to(m.program_version);
    json.at("model_fingerprint").get_to(m.model_fingerprint);
    json.at("vocabulary").get_to(m.vocabulary);
    json.at("prompts_fingerprint").get_to(m.prompts_fingerprint);
    json.at("prompts").get_to(m.prompts);
    if (m.prompts > kMostPrompts)
      throw IoError(name + ": more prompts than a run can have: " + std::to_string(m.prompts));
    json.at("samples").get_to(m.samples);
    m.sampling = sampling_from(json.at("sampling"));
    if (m.sampling.keep_routing) {
      json.at("sampling").at("routed_layers").get_to(m.routing.layers);
      json.at("sampling").at("experts_chosen").get_to(m.routing.chosen);
      json.at("sampling").at("experts").get_to(m.routing.experts);
    }
    if (json.at("sampling").contains("stops"))
      m.stops = json.at("sampling").at("stops").get<std::vector<TokenId>>();
    if (json.at("sampling").contains("samples")) {
      for (const Json& run : json.at("sampling").at("samples")) {
        const auto prompts = run.at(1).get<std::uint64_t>();
        if (prompts > m.prompts - m.own_samples.size())
          throw IoError(name + ": samples of more prompts than there are");
        if (run.at(0).get<std::uint32_t>() > m.samples)
          throw IoError(name + ": more samples of a prompt than of any");
        m.own_samples.insert(m.own_samples.end(), prompts, run.at(0).get<std::uint32_t>());
      }
      if (m.own_samples.size() != m.prompts)
        throw IoError(name + ": samples of fewer prompts than there are");
    }
    m.by_line = json.at("sampling").value("by_line", std::vector<std::string>());
    m.longest_response = json.at("sampling").value("longest_response", m.sampling.max_tokens);
    if (json.at("sampling").contains("environment")) {
      const Json& terms = json.at("sampling").at("environment");
      EnvironmentTerms& environment = m.environment.emplace();
      terms.at("command").get_to(environment.command);
      terms.at("max_turns").get_to(environment.max_turns);
      terms.at("max_tokens_turn").get_to(environment.max_tokens_turn);
    }
    m.begun = json.at("sampling").value("begun", std::string());
    if (json.at("sampling").contains("dynamic")) {
      const Json& terms = json.at("sampling").at("dynamic");
      KeptPrompts& choice = m.choice.emplace();
      terms.at("enough").get_to(choice.enough);
      choice.shuffled = terms.value("shuffled", false);
      choice.prompts = terms.value("prompts", std::uint64_t{0});
      choice.dropped = terms.value("dropped", std::uint64_t{0});
      choice.fingerprint = terms.value("prompts_fingerprint", std::string());
    }
    json.at("seed").get_to(m.sampling.seed);
    json.at("weight_version").get_to(m.weight_version);
    json.at("backend").get_to(m.backend);
    json.at("isa").get_to(m.isa);
    const auto dtype = json.at("dtype").get<std::string>();
    if (dtype != name_of(DType::f32) && dtype != name_of(DType::bf16)) {
      throw IoError(name + ": dtype is \"" + dtype + "\", expected fp32 or bf16");
    }
    m.dtype = dtype == name_of(DType::f32) ? DType::f32 : DType::bf16;
    json.at("config").get_to(m.config_text);
    return m;
  } catch (const Json::exception& error) {
    throw IoError(name + ": not the manifest of a run: " + error.what());
  }
}

ResponseOrder::ResponseOrder(const RunManifest& manifest)
    : samples_(manifest.samples), size_(manifest.prompts * manifest.samples) {
  if (manifest.own_samples.empty()) return;
  firsts_.assign(1, 0);
  for (const std::uint32_t samples : manifest.own_samples)
    firsts_.push_back(firsts_.back() + samples);
  size_ = firsts_.back();
}

std::uint64_t ResponseOrder::place(RequestId id) const {
  const bool alike = firsts_.empty();
  const std::uint64_t end =
      alike ? (id.prompt + std::uint64_t{1}) * samples_ : firsts_.at(id.prompt + std::size_t{1});
  const std::uint64_t place = (alike ? id.prompt * samples_ : firsts_[id.prompt]) + id.sample;
  if (place >= end || end > size_) throw std::logic_error("a response that its run does not have");
  return place;
}

RequestId ResponseOrder::at(std::uint64_t place) const {
  if (place >= size_) throw std::logic_error("a response that its run does not have");
  if (firsts_.empty())
    return {static_cast<std::uint32_t>(place / samples_),
            static_cast<std::uint32_t>(place % samples_)};
  const auto after = std::ranges::upper_bound(firsts_, place);
  return {static_cast<std::uint32_t>(after - firsts_.begin() - 1),
          static_cast<std::uint32_t>(place - *std::prev(after))};
}

std::string to_json(const RunManifest& manifest) {
  return dump(manifest_to_json(manifest), 2) + "\n";
}

RunManifest manifest_from_json(const std::string& text, const std::string& name) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw IoError(name + ": not the manifest of a run: " + error.what());
  }
  return manifest_of_json(json, name);
}

std::optional<std::string> first_difference(const RunManifest& earlier, const RunManifest& now) {
  RunManifest as_then = now;
  std::erase_if(as_then.by_line, [&](const std::string& field) {
    const auto has = [&](const std::vector<std::string>& fields) {
      return std::ranges::find(fields, field) != fields.end();
    };
    return has(now.repeated) && !has(earlier.by_line);
  });
  Json was = manifest_to_json(earlier);
  const Json is = manifest_to_json(as_then);
  if (earlier.choice && !earlier.choice->fingerprint.empty()) {
    // The manifest of a final file describes the kept prompts, but all prompts of the run are to be
    // compared. If they are the same, so are their numbers of samples.
    was["prompts"] = earlier.choice->prompts;
    was["prompts_fingerprint"] = earlier.choice->fingerprint;
    was["sampling"]["samples"] = is["sampling"].value("samples", Json());
  }
  for (const char* key : {"model_fingerprint", "prompts_fingerprint", "prompts", "samples", "seed",
                          "weight_version", "dtype", "backend", "isa"}) {
    if (auto found = difference(key, was[key], is[key])) return found;
  }
  const char* const environment = "environment";
  if (auto found = difference(environment, was["sampling"].value(environment, Json("none")),
                              is["sampling"].value(environment, Json("none"))))
    return found;
  const auto enough = [](const RunManifest& m) {
    return m.choice ? Json(m.choice->enough) : Json("none");
  };
  if (auto found = difference("prompts.enough", enough(earlier), enough(now))) return found;
  const auto shuffled = [](const RunManifest& m) { return Json(m.choice && m.choice->shuffled); };
  if (auto found = difference("prompts.shuffle", shuffled(earlier), shuffled(now))) return found;
  if (auto found =
          difference("the unfinished responses of prompts.begun", earlier.begun, now.begun))
    return found;
  // Settings that are written only if they are on, with their values when off.
  const std::pair<const char*, Json> optional[] = {
      {"keep_routing", false},     {"logprobs", 0},
      {"repetition_penalty", 1.0}, {"presence_penalty", 0.0},
      {"frequency_penalty", 0.0},  {"logit_bias", Json::object()},
      {"samples", Json()}};
  for (const auto& [key, off] : optional) {
    if (auto found = difference(std::string("sampling.") + key, was["sampling"].value(key, off),
                                is["sampling"].value(key, off)))
      return found;
  }
  for (const auto& [key, value] : is["sampling"].items()) {
    const auto is_key = [&key = key](const auto& entry) { return key == entry.first; };
    if (std::ranges::any_of(optional, is_key)) continue;
    if (key == "dynamic" || key == "begun" || (key == "stops" && !was["sampling"].contains(key)))
      continue;
    const std::string name =
        key == "masked"  ? "tokens masked by sampling.unused_ids, banned_ids and allowed_ids"
        : key == "stops" ? "tokens that end a response (eos_token_id, sampling.stop_ids)"
                         : "sampling." + key;
    if (auto found = difference(name, was["sampling"].value(key, Json()), value)) return found;
  }
  return std::nullopt;
}

std::string prompts_fingerprint(std::span<const Prompt> prompts) {
  XXH128_hash_t hash{0, 0};
  // The hash is a chain: each field is hashed with its length and the hash so far.
  const auto feed = [&hash](const void* data, std::size_t bytes) {
    const XXH128_hash_t field = XXH3_128bits(data, bytes);
    const std::uint64_t words[5] = {hash.low64, hash.high64, field.low64, field.high64, bytes};
    hash = XXH3_128bits(words, sizeof words);
  };
  for (const Prompt& prompt : prompts) {
    feed(prompt.uid.data(), prompt.uid.size());
    feed(prompt.tokens.data(), prompt.tokens.size() * sizeof(TokenId));
    feed(prompt.ground_truth.data(), prompt.ground_truth.size());
    feed(prompt.extra_json.data(), prompt.extra_json.size());
    for (const PromptPicture& picture : prompt.pictures) feed(&picture.hash, sizeof picture.hash);
  }
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void write_manifest_attributes(const h5::File& file, const RunManifest& manifest) {
  const Json json = manifest_to_json(manifest);
  for (const auto& [key, value] : json.items()) {
    if (key == "schema_version") {
      h5::write_attribute(file.id(), file.path(), key, value.get<std::int32_t>());
    } else if (value.is_number()) {
      h5::write_attribute(file.id(), file.path(), key, value.get<std::uint64_t>());
    } else {
      h5::write_attribute(file.id(), file.path(), key == "config" ? "config_text" : key,
                          value.is_string() ? value.get<std::string>() : dump(value));
    }
  }
}

RunManifest read_manifest_attributes(const h5::File& file) {
  Json json;
  for (const char* key :
       {"schema_version", "vocabulary", "prompts", "samples", "seed", "weight_version"}) {
    std::uint64_t value = 0;
    h5::read_attribute(file.id(), file.path(), key, h5::native<std::uint64_t>(), &value);
    json[key] = value;
  }
  for (const char* key : {"program_version", "model_fingerprint", "prompts_fingerprint", "backend",
                          "isa", "dtype", "config_text"}) {
    const bool config = std::string(key) == "config_text";
    json[config ? "config" : key] = h5::read_string_attribute(file.id(), file.path(), key);
  }
  json["sampling"] =
      Json::parse(h5::read_string_attribute(file.id(), file.path(), "sampling"), nullptr, false);
  return manifest_of_json(json, file.path());
}

RunManifest read_manifest(const std::string& path) {
  namespace fs = std::filesystem;
  std::string file = path;
  if (fs::is_directory(path)) {
    file = (fs::path(path) / kManifestName).string();
    if (fs::exists(file)) return manifest_from_json(read_whole(file), file);
    file = (fs::path(path) / kFinalName).string();
  }
  const auto lock = h5::lock_hdf5();
  return read_manifest_attributes(h5::File::open(file));
}

}  // namespace paceline::io
