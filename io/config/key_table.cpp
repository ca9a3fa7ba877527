#include "io/config/key_table.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "io/config/quantity.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();
constexpr std::uint64_t unsigned_max = std::numeric_limits<std::uint64_t>::max();

// A key that is a field of the same name: section, name, and how to reach the field.
#define PACELINE_FIELD(section, name) \
#section, #name, [](auto& config) -> auto& { return config.section.name; }

bool is_plain(const YamlNode& node) { return node.kind == YamlNode::Kind::scalar && !node.quoted; }
bool is_scalar(const YamlNode& node) { return node.kind == YamlNode::Kind::scalar; }
bool is_auto(const YamlNode& node) { return is_scalar(node) && node.scalar == "auto"; }

// Wraps a value's codec into a key. Codec: type() in words, read(node, directory) -> value or
// BadValue, write(value) -> YAML.
template <typename Field, typename Codec>
Key key(std::string_view section, std::string_view name, Field field, Codec codec,
        std::string_view help, bool required = false) {
  Key row;
  row.section = section;
  row.name = name;
  row.type = codec.type();
  row.required = required;
  row.set = [field, codec](RunConfig& config, const YamlNode& node, const std::string& directory) {
    field(config) = codec.read(node, directory);
  };
  row.get = [field, codec](const RunConfig& config) { return codec.write(field(config)); };
  row.help = help;
  return row;
}

// A whole number of type T in [low, high], `multiple` of something.
template <typename T>
struct Whole {
  T low;
  T high;
  T multiple = 1;

  [[nodiscard]] std::string type() const {
    const std::string number =
        multiple == 1 ? "a whole number" : "a multiple of " + std::to_string(multiple);
    const bool bounded = high != std::numeric_limits<T>::max();
    return number + (bounded ? " from " + std::to_string(low) + " to " + std::to_string(high)
                             : ", at least " + std::to_string(low));
  }
  [[nodiscard]] T read(const YamlNode& node, const std::string&) const {
    if (is_plain(node)) {
      if constexpr (std::is_unsigned_v<T>) {
        const auto value = parse_unsigned(node.scalar);
        if (value && *value >= low && *value <= high) return *value;
      } else {
        const auto value = parse_integer(node.scalar);
        if (value && *value >= low && *value <= high && *value % multiple == 0) {
          return static_cast<T>(*value);
        }
      }
    }
    throw BadValue{&node, type(), {}};
  }
  [[nodiscard]] static std::string write(T value) { return std::to_string(value); }
};
using Count = Whole<std::int32_t>;

// A power of two in [1, high].
struct PowerOfTwo {
  std::int32_t high;
  [[nodiscard]] std::string type() const {
    return "a power of two from 1 to " + std::to_string(high);
  }
  [[nodiscard]] std::int32_t read(const YamlNode& node, const std::string&) const {
    const auto value = is_plain(node) ? parse_integer(node.scalar) : std::nullopt;
    if (!value || *value < 1 || *value > high || (*value & (*value - 1)) != 0) {
      throw BadValue{&node, type(), {}};
    }
    return static_cast<std::int32_t>(*value);
  }
  [[nodiscard]] static std::string write(std::int32_t value) { return std::to_string(value); }
};

// A float for which `valid` holds; `words` say when.
struct Real {
  std::string_view words;
  bool (*valid)(float);
  [[nodiscard]] std::string type() const { return std::string(words); }
  [[nodiscard]] float read(const YamlNode& node, const std::string&) const {
    const auto value = is_plain(node) ? parse_float(node.scalar) : std::nullopt;
    if (!value || !valid(*value)) throw BadValue{&node, type(), {}};
    return *value == 0 ? 0.0F : *value;  // -0 is 0
  }
  [[nodiscard]] static std::string write(float value) { return format_number(value); }
};

struct Flag {
  [[nodiscard]] static std::string type() { return "true or false"; }
  [[nodiscard]] static bool read(const YamlNode& node, const std::string&) {
    if (is_plain(node) && (node.scalar == "true" || node.scalar == "false")) {
      return node.scalar == "true";
    }
    throw BadValue{&node, type(), {}};
  }
  [[nodiscard]] static std::string write(bool value) { return value ? "true" : "false"; }
};

struct Duration {
  double low;   // seconds
  double high;  // seconds
  [[nodiscard]] std::string type() const {
    return "a duration (90, 30s, 15m, 2h, HH:MM:SS) from " + format_number(low) + " to " +
           format_number(high) + " seconds";
  }
  [[nodiscard]] double read(const YamlNode& node, const std::string&) const {
    const auto value = is_scalar(node) ? parse_duration(node.scalar) : std::nullopt;
    if (!value || *value < low || *value > high) throw BadValue{&node, type(), {}};
    return *value;
  }
  [[nodiscard]] static std::string write(double value) { return format_number(value); }
};

struct Size {
  [[nodiscard]] static std::string type() {
    return "a size (2GiB, 512MiB, 1.5e9) of at least 1MiB";
  }
  [[nodiscard]] static std::uint64_t read(const YamlNode& node, const std::string&) {
    const auto value = is_scalar(node) ? parse_size(node.scalar) : std::nullopt;
    if (!value || *value < (1U << 20)) throw BadValue{&node, type(), {}};
    return *value;
  }
  [[nodiscard]] static std::string write(std::uint64_t value) { return std::to_string(value); }
};

// A path, made absolute: the effective configuration then means the same from anywhere.
struct Path {
  std::string_view words;
  [[nodiscard]] std::string type() const { return std::string(words); }
  [[nodiscard]] std::string read(const YamlNode& node, const std::string& directory) const {
    if (!is_scalar(node) || node.scalar.empty()) throw BadValue{&node, type(), {}};
    if (node.scalar.find('\0') != std::string::npos) {
      throw BadValue{&node, type() + " without a NUL character", {}};
    }
    std::error_code error;
    const std::filesystem::path whole =
        std::filesystem::absolute(std::filesystem::path(directory) / node.scalar, error);
    // "." goes; ".." stays, because it means something else behind a symbolic link.
    std::filesystem::path path;
    for (const std::filesystem::path& part : whole) {
      if (part != ".") path /= part;
    }
    if (error || find_invalid_utf8(path.string()) != std::string_view::npos) {
      throw BadValue{&node, type() + " whose full name is UTF-8 text", {}};
    }
    return path.string();
  }
  [[nodiscard]] static std::string write(const std::string& value) { return quote_yaml(value); }
};

std::string list_names(std::span<const std::string_view> names) {
  std::string text = names.size() > 1 ? "one of " : "";
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::string(names[i]);
  }
  return text;
}

// One of a few words, each standing for a value.
template <typename T, std::size_t N>
struct Choice {
  std::array<std::string_view, N> names;
  std::array<T, N> values;
  [[nodiscard]] std::string type() const { return list_names(names); }
  [[nodiscard]] T read(const YamlNode& node, const std::string&) const {
    for (std::size_t i = 0; i < N; ++i) {
      if (is_scalar(node) && node.scalar == names[i]) return values[i];
    }
    const std::string_view near =
        is_scalar(node) ? nearest_name(std::string_view(node.scalar).substr(0, 64), names) : "";
    throw BadValue{&node, type(), near.empty() ? "" : "did you mean '" + std::string(near) + "'?"};
  }
  [[nodiscard]] std::string write(const T& value) const {
    const auto found = std::find(values.begin(), values.end(), value);
    return std::string(names[static_cast<std::size_t>(found - values.begin())]);
  }
};
template <typename... Names>
auto words(Names... names) {
  constexpr std::size_t n = sizeof...(names);
  return Choice<std::string, n>{{names...}, {std::string(names)...}};
}

// `auto`, or what the inner codec takes.
template <typename Inner>
struct OrAuto {
  Inner inner;
  using Value = decltype(inner.read(std::declval<const YamlNode&>(), std::string()));
  [[nodiscard]] std::string type() const { return "auto, or " + inner.type(); }
  [[nodiscard]] Auto<Value> read(const YamlNode& node, const std::string& directory) const {
    if (is_auto(node)) return std::nullopt;
    try {
      return inner.read(node, directory);
    } catch (BadValue& bad) {
      bad.expected = type();
      throw;
    }
  }
  [[nodiscard]] std::string write(const Auto<Value>& value) const {
    return value ? inner.write(*value) : "auto";
  }
};
template <typename Inner>
OrAuto(Inner) -> OrAuto<Inner>;

struct Text {
  [[nodiscard]] static std::string type() { return "non-empty text"; }
  [[nodiscard]] static std::string read(const YamlNode& node, const std::string&) {
    if (!is_scalar(node) || node.scalar.empty()) throw BadValue{&node, type(), {}};
    return node.scalar;
  }
  [[nodiscard]] static std::string write(const std::string& value) { return quote_yaml(value); }
};

template <typename Inner>
struct List {
  Inner inner;
  std::string_view items;  // what it is a list of, in words
  using Value = decltype(inner.read(std::declval<const YamlNode&>(), std::string()));
  [[nodiscard]] std::string type() const { return "a list of " + std::string(items); }
  [[nodiscard]] std::vector<Value> read(const YamlNode& node, const std::string& directory) const {
    if (node.kind != YamlNode::Kind::list) throw BadValue{&node, type(), {}};
    std::vector<Value> values;
    for (const YamlNode& item : node.items) values.push_back(inner.read(item, directory));
    return values;
  }
  [[nodiscard]] std::string write(const std::vector<Value>& values) const {
    std::string text = "[";
    for (const Value& value : values) text += (text.size() > 1 ? ", " : "") + inner.write(value);
    return text + "]";
  }
};

// speculation.drafters has no field yet: nothing but an empty list may be said.
Key no_drafters() {
  Key row;
  row.section = "speculation";
  row.name = "drafters";
  row.type = "an empty list, []";
  row.set = [type = row.type](RunConfig&, const YamlNode& node, const std::string&) {
    if (node.kind != YamlNode::Kind::list || !node.items.empty()) {
      throw BadValue{&node, type, "this version of paceline decodes plainly, without drafters"};
    }
  };
  row.get = [](const RunConfig&) { return std::string("[]"); };
  row.help = "Sources of draft tokens; this version decodes plainly, without any.";
  return row;
}

std::vector<Key> make_table() {
  const Path directory{"the path of a directory"};
  const Path file{"the path of a file"};
  const Choice<DType, 2> dtype{{"bf16", "fp32"}, {DType::bf16, DType::f32}};
  const Choice<Overlong, 3> overlong{{"error", "skip", "truncate"},
                                     {Overlong::error, Overlong::skip, Overlong::truncate}};
  const Real temperature{"0, or a number from 0.001 to 1000",
                         [](float v) { return v == 0 || (v >= 0.001F && v <= 1000); }};
  const Real top_p{"a number above 0 and at most 1", [](float v) { return v > 0 && v <= 1; }};
  const Real min_p{"a number from 0 to below 1", [](float v) { return v >= 0 && v < 1; }};

  std::vector<Key> t;
  t.push_back(key(PACELINE_FIELD(model, path), directory,
                  "Hugging Face model: config.json, *.safetensors, tokenizer.json.", true));
  t.push_back(key(PACELINE_FIELD(model, dtype), OrAuto{dtype},
                  "Type to compute in; auto is the type of the stored weights."));
  t.push_back(key(PACELINE_FIELD(model, weight_version), Whole<std::uint64_t>{0, unsigned_max},
                  "Recorded with every response, and part of what the noise depends on."));

  t.push_back(key(PACELINE_FIELD(prompts, path), file, "Prompts, one JSON object a line.", true));
  t.push_back(
      key(PACELINE_FIELD(prompts, samples), Count{1, 1000000}, "Responses to each prompt."));
  t.push_back(key(PACELINE_FIELD(prompts, overlong), overlong,
                  "A prompt that leaves no room for a response; truncate keeps its last tokens."));
  t.push_back(key(PACELINE_FIELD(prompts, max_prompt_tokens), Count{0, int_max},
                  "Longest prompt, in tokens; 0 is what the context leaves beside max_tokens."));
  t.push_back(key(PACELINE_FIELD(prompts, shuffle), Flag{},
                  "Start prompts in a seeded random order; results stay in file order."));

  t.push_back(key(PACELINE_FIELD(sampling, temperature), temperature,
                  "Divides the logits; 0 takes the most probable token."));
  t.push_back(key(PACELINE_FIELD(sampling, top_k), Count{0, int_max},
                  "Sample from the k most probable tokens; 0 is off."));
  t.push_back(key(PACELINE_FIELD(sampling, top_p), top_p,
                  "Sample from the fewest tokens with this probability together; 1 is off."));
  t.push_back(key(PACELINE_FIELD(sampling, min_p), min_p,
                  "Sample from tokens this probable relative to the best one; 0 is off."));
  t.push_back(key(PACELINE_FIELD(sampling, min_tokens), Count{0, 1 << 24},
                  "Tokens before which a response cannot stop."));
  t.push_back(
      key(PACELINE_FIELD(sampling, max_tokens), Count{1, 1 << 24}, "Longest response, in tokens."));
  t.push_back(key(PACELINE_FIELD(sampling, seed), Whole<std::uint64_t>{0, unsigned_max},
                  "Seed of the noise that decides every sampled token."));
  t.push_back(key(PACELINE_FIELD(sampling, ignore_eos), Flag{},
                  "The model's own end tokens do not end a response."));
  t.push_back(key(PACELINE_FIELD(sampling, stop_ids),
                  List<Count>{{0, int_max}, "token ids (whole numbers, at least 0)"},
                  "Further tokens that end a response, and stay in it."));
  t.push_back(key(PACELINE_FIELD(sampling, stop_strings), List<Text>{{}, "non-empty texts"},
                  "Texts that end a response; the token that completes one stays in it."));

  t.push_back(key(PACELINE_FIELD(layout, verifier_tp), OrAuto{PowerOfTwo{64}},
                  "Ranks that share the weights of one verifier group (tensor parallelism)."));
  t.push_back(key(PACELINE_FIELD(layout, verifier_groups), OrAuto{Count{1, 1 << 20}},
                  "Groups that hold the model and generate."));
  t.push_back(
      key(PACELINE_FIELD(layout, drafters), OrAuto{Count{0, 1 << 20}}, "Ranks that draft."));

  t.push_back(key(PACELINE_FIELD(engine, backend), words("auto", "cpu"), "What computes."));
  t.push_back(key(PACELINE_FIELD(engine, isa),
                  words("auto", "avx512_bf16", "avx512", "avx2", "portable"),
                  "Instruction set of the cpu backend; auto is the best this machine has."));
  t.push_back(
      key(PACELINE_FIELD(engine, threads), OrAuto{Count{1, 1024}}, "Threads of each rank."));
  t.push_back(
      key(PACELINE_FIELD(engine, max_batch), Count{1, 65536}, "Most requests in one step."));
  t.push_back(key(PACELINE_FIELD(engine, prefill_chunk), Count{1, 1 << 20},
                  "Most prompt tokens in one step."));
  t.push_back(key(PACELINE_FIELD(engine, kv_block), Count{16, 1024, 16},
                  "Positions in one block of the KV cache."));
  t.push_back(
      key(PACELINE_FIELD(engine, kv_memory), OrAuto{Size{}}, "KV cache of each rank, in bytes."));

  t.push_back(no_drafters());
  t.push_back(key(PACELINE_FIELD(speculation, policy), words("goodput"),
                  "How the draft length is chosen; no effect without drafters."));
  t.push_back(key(PACELINE_FIELD(speculation, max_length), Count{1, 1024},
                  "Longest draft, in tokens; no effect without drafters."));
  t.push_back(key(PACELINE_FIELD(speculation, paths), Count{1, 1024},
                  "Draft paths of one request; no effect without drafters."));

  t.push_back(key(PACELINE_FIELD(reward, method), words("none"), "How responses are scored."));

  t.push_back(key(PACELINE_FIELD(output, directory), directory,
                  "Where trajectories.h5 and telemetry.h5 go; made when missing.", true));
  t.push_back(key(PACELINE_FIELD(output, flush_seconds), Duration{0, 86400},
                  "Finished responses reach the disk at least this often, in seconds."));

  t.push_back(key(PACELINE_FIELD(limits, wall_clock), OrAuto{Duration{1, 366.0 * 86400}},
                  "Time the run has; auto is what Slurm gave the job, or no limit."));
  t.push_back(key(PACELINE_FIELD(limits, margin), Duration{0, 86400},
                  "How long before the limit the run stops cleanly, in seconds."));
  return t;
}
#undef PACELINE_FIELD

}  // namespace

std::span<const Key> key_table() {
  static const std::vector<Key> table = make_table();
  return table;
}

}  // namespace paceline::io
