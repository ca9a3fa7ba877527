// Identity of a run: stored as DIR/run.json before the first token and as attributes of the final
// file, and compared when a run is resumed.
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

/// What decides conversations, beside what is said in them.
struct EnvironmentTerms {
  std::vector<std::string> command;
  std::int32_t max_turns = 0;
  std::int32_t max_tokens_turn = 0;  ///< 0: none
};

/// Which layers have experts, and how many of them a token uses in each.
struct RoutingShape {
  std::vector<std::uint8_t> layers;  ///< [layers of the model] 1: it has some
  std::int32_t chosen = 0;           ///< in a layer, by a token
  std::int32_t experts = 0;          ///< of a layer

  bool operator==(const RoutingShape&) const = default;
  /// Experts of a token.
  [[nodiscard]] std::size_t width() const {
    return static_cast<std::size_t>(std::count(layers.begin(), layers.end(), 1)) * chosen;
  }
};

/// Dynamic sampling (prompts.enough), and in a final file what it came to.
struct KeptPrompts {
  std::uint64_t enough = 0;   ///< prompts that are wanted
  bool shuffled = false;      ///< they are decided in the order of prompts.shuffle
  std::uint64_t prompts = 0;  ///< of the run; 0: in no final file. The file has those kept
  std::uint64_t dropped = 0;  ///< prompts that were decided, and not kept
  /// [RunManifest::prompts] of a final file: each prompt's index among those of the run, ascending.
  /// Stored as /prompts/index.
  std::vector<std::uint32_t> kept = {};
};

struct RunManifest {
  std::int32_t schema_version = kSchemaVersion;
  std::string program_version;
  std::string config_text;          ///< effective configuration, YAML
  std::string model_fingerprint;    ///< of the weights and the settings that decide their use
  std::uint64_t vocabulary = 0;     ///< token ids are below it
  std::string prompts_fingerprint;  ///< prompts_fingerprint() below
  std::uint64_t prompts = 0;        ///< number of prompts
  std::uint32_t samples = 1;        ///< responses to a prompt: the most that any prompt has
  /// [prompts] responses to each, where lines have their own; empty: `samples`.
  std::vector<std::uint32_t> own_samples;
  SamplingParams sampling;  ///< with the seed
  RoutingShape routing;     ///< of the model, where experts are kept
  /// Every id that ends a response, the model's own among them; nullopt in older files.
  std::optional<std::vector<TokenId>> stops;
  /// Parameters that some lines of the prompts set themselves, ascending.
  std::vector<std::string> by_line;
  /// Those of them that only repeat the run's; not stored.
  std::vector<std::string> repeated;
  std::int32_t longest_response = 0;            ///< tokens: the largest max_tokens of a line
  std::optional<EnvironmentTerms> environment;  ///< absent: responses are of one turn
  std::optional<KeptPrompts> choice;            ///< absent: all prompts are kept
  /// Fingerprint of unfinished responses of an earlier run that this one goes on with
  /// (left_over.hpp); empty: there are none.
  std::string begun;
  std::uint64_t weight_version = 0;
  std::string backend;
  std::string isa;
  DType dtype = DType::bf16;  ///< compute dtype

  /// Responses to a prompt, which is below `prompts`.
  [[nodiscard]] std::uint32_t samples_of(std::uint64_t prompt) const {
    return own_samples.empty() ? samples : own_samples.at(prompt);
  }
};

/// The places of a run's responses in (prompt, sample) order. Functions throw std::logic_error
/// where the run has no such response.
class ResponseOrder {
 public:
  explicit ResponseOrder(const RunManifest& manifest);
  [[nodiscard]] std::uint64_t size() const { return size_; }  ///< responses of a complete run
  [[nodiscard]] std::uint64_t place(RequestId id) const;
  [[nodiscard]] RequestId at(std::uint64_t place) const;

 private:
  std::uint64_t samples_;
  std::uint64_t size_;
  std::vector<std::uint64_t> firsts_;  ///< [prompts + 1] places; empty: all have as many samples
};

/// Fingerprint of 32 hexadecimal digits over uids, tokens, ground truths, extra fields and the
/// files of pictures, in file order.
[[nodiscard]] std::string prompts_fingerprint(std::span<const Prompt> prompts);

/// The first difference between two manifests that decides trajectories (model, prompts, samples,
/// sampling, seed, weight version, dtype, backend, ISA), as "sampling.seed: 1, now 2"; nullopt when
/// all agree. Program version and the rest of the configuration (layout, engine, speculation) may
/// differ between attempts, and an earlier version may not have named what lines only repeat.
[[nodiscard]] std::optional<std::string> first_difference(const RunManifest& earlier,
                                                          const RunManifest& now);

[[nodiscard]] std::string to_json(const RunManifest& manifest);
/// Throws IoError naming `name` and the key when the text is no manifest of this schema.
[[nodiscard]] RunManifest manifest_from_json(const std::string& text, const std::string& name);

/// The manifest of a run directory or of a final file. Throws IoError when there is none.
[[nodiscard]] RunManifest read_manifest(const std::string& path);

}  // namespace paceline::io
