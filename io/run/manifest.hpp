// Identity of a run. It is stored as DIR/run.json before the first token, and as attributes of the
// final file. It is compared when a run is resumed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/types.hpp"

namespace paceline::io {

/// Version of the layout of run.json, the shards and the final file.
inline constexpr std::int32_t kSchemaVersion = 3;

/// The settings that decide conversations, in addition to their contents.
struct EnvironmentTerms {
  std::vector<std::string> command;
  std::int32_t max_turns = 0;
  std::int32_t max_tokens_turn = 0;  ///< 0: no limit
};

/// The layers that have experts, and the number of experts that a token uses in each.
struct RoutingShape {
  std::vector<std::uint8_t> layers;  ///< [layers of the model] 1: the layer has experts
  std::int32_t chosen = 0;           ///< experts that a token uses in a layer
  std::int32_t experts = 0;          ///< experts of a layer

  bool operator==(const RoutingShape&) const = default;
  /// Number of a token's experts in all layers.
  [[nodiscard]] std::size_t width() const {
    return static_cast<std::size_t>(std::count(layers.begin(), layers.end(), 1)) * chosen;
  }
};

/// The settings of dynamic sampling (prompts.enough) and, in a final file, its outcome.
struct KeptPrompts {
  std::uint64_t enough = 0;   ///< number of prompts wanted
  bool shuffled = false;      ///< prompts are decided in the order of prompts.shuffle
  std::uint64_t prompts = 0;  ///< all prompts of the run, kept or not; 0: not a final file
  std::uint64_t dropped = 0;  ///< prompts that were decided, and not kept
  /// prompts_fingerprint() of all prompts of the run, in a final file; empty in older ones.
  std::string fingerprint = {};
  /// [RunManifest::prompts] In a final file, each kept prompt's index among all prompts, ascending.
  /// Stored as /prompts/index.
  std::vector<std::uint32_t> kept = {};
};

struct RunManifest {
  std::int32_t schema_version = kSchemaVersion;
  std::string program_version;
  std::string config_text;          ///< effective configuration, YAML
  std::string model_fingerprint;    ///< covers the weights and settings on their use
  std::uint64_t vocabulary = 0;     ///< token ids are below this
  std::string prompts_fingerprint;  ///< prompts_fingerprint() below
  std::uint64_t prompts = 0;        ///< number of prompts
  std::uint32_t samples = 1;        ///< responses to a prompt: the most of any prompt
  /// [prompts] number of responses to each; empty: all prompts have `samples`.
  std::vector<std::uint32_t> own_samples;
  SamplingParams sampling;  ///< includes the seed
  RoutingShape routing;     ///< experts of the model; empty: none are kept
  /// Every id that ends a response, with the model's own end tokens; nullopt in older files.
  std::optional<std::vector<TokenId>> stops;
  /// Parameters that some lines of the prompts set for themselves, ascending.
  std::vector<std::string> by_line;
  /// Parameters in `by_line` whose values only repeat the run's; not stored.
  std::vector<std::string> repeated;
  std::int32_t longest_response = 0;            ///< tokens: the largest max_tokens of a line
  std::optional<EnvironmentTerms> environment;  ///< nullopt: responses are of one turn
  std::optional<KeptPrompts> choice;            ///< nullopt: all prompts are kept
  /// Fingerprint of an earlier run's unfinished responses, with which this run goes on
  /// (left_over.hpp); empty: there are none.
  std::string begun;
  std::uint64_t weight_version = 0;
  std::string backend;
  std::string isa;
  DType dtype = DType::bf16;  ///< compute dtype

  /// Number of responses to a prompt, an index below `prompts`.
  [[nodiscard]] std::uint32_t samples_of(std::uint64_t prompt) const {
    return own_samples.empty() ? samples : own_samples.at(prompt);
  }
};

/// The places of a run's responses in (prompt, sample) order. Functions throw std::logic_error if
/// the run has no such response.
class ResponseOrder {
 public:
  explicit ResponseOrder(const RunManifest& manifest);
  [[nodiscard]] std::uint64_t size() const { return size_; }  ///< responses of a complete run
  [[nodiscard]] std::uint64_t place(RequestId id) const;
  [[nodiscard]] RequestId at(std::uint64_t place) const;

 private:
  std::uint64_t samples_;
  std::uint64_t size_;
  std::vector<std::uint64_t> firsts_;  ///< [prompts + 1] first places; empty: all have samples_
};

/// Fingerprint of 32 hexadecimal digits over the uids, tokens, ground truths, extra fields and
/// picture files of prompts, in file order.
[[nodiscard]] std::string prompts_fingerprint(std::span<const Prompt> prompts);

/// The first difference between two manifests that decides trajectories (model, prompts, samples,
/// sampling, seed, weight version, dtype, backend, ISA), as "sampling.seed: 1, now 2"; nullopt:
/// none. Program version and other configuration (layout, engine, speculation) may differ between
/// attempts. An earlier version may not have named line parameters that only repeat the run's.
[[nodiscard]] std::optional<std::string> first_difference(const RunManifest& earlier,
                                                          const RunManifest& now);

[[nodiscard]] std::string to_json(const RunManifest& manifest);
/// Throws IoError naming `name` and the key if the text is no manifest of this schema.
[[nodiscard]] RunManifest manifest_from_json(const std::string& text, const std::string& name);

/// Reads the manifest of a run directory or a final file. Throws IoError if there is none.
[[nodiscard]] RunManifest read_manifest(const std::string& path);

}  // namespace paceline::io
