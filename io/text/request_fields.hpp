// Fields of a prompt's line about the sampling of its responses.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/json_line.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"

namespace paceline::io {

/// Facts about the run by which lines are read.
struct RequestOptions {
  SamplingParams sampling = {};  ///< sampling of the run
  std::int32_t samples = 1;      ///< samples of the run
  std::int32_t context = 0;      ///< most positions of a prompt with its response; 0: no limit
  /// All ids that end a response with these parameters, with the model's own; null: stop_ids.
  std::function<std::vector<TokenId>(const SamplingParams&)> stops = nullptr;
  /// The kinds of input that the model takes, for errors about lines with pictures or films.
  std::string no_media = "the model is given text alone";
};

/// Request fields that lines have.
struct RequestFields {
  std::set<std::string> honoured;   ///< fields that some line sets for itself
  std::set<std::string> differing;  ///< honoured fields by which some line differs from the run
  struct Ignored {
    std::size_t lines = 0;
    std::size_t first = 0;  ///< number of the first line, from 1
  };
  std::map<std::string, Ignored> ignored;  ///< fields kept for trainers, without effect
};

/// Reads the parameters that a stored prompt's line sets. `fields`: those honoured when the
/// responses were sampled. Throws DataError, naming the prompt, if they cannot be read.
[[nodiscard]] RequestSampling stored_sampling(const Prompt& prompt,
                                              std::span<const std::string> fields,
                                              const RequestOptions& options, std::int32_t vocab);

namespace text {

/// Reads the fields of one line. These fields replace the run's own:
///   `max_tokens`    longest response, tokens
///   `stop_ids`      token ids that end a response
///   `stop_strings`  texts that end a response; `stop` is another name, and may be one text
///   `temperature`, `top_k`, `top_p`, `min_p`, `repetition_penalty`, `presence_penalty`,
///   `frequency_penalty`, `logit_bias` (an object: id -> bias), `seed`
///   `samples`       responses to the prompt; `n` is another name
/// null is the same as absent. Throws LineError on a value of another type or out of range, on a
/// max_tokens below the run's min_tokens or without room for a prompt, and on an id outside the
/// vocabulary. Throws LineError on unsupported fields that would change sampling: other sampling
/// parameters (unless they repeat the run's value), other engines' names, images, agents.
class RequestReader {
 public:
  /// `vocab`: ids must be below; 0: unknown. `has_text`: there is a tokenizer.
  RequestReader(const RequestOptions& options, std::int32_t vocab, bool has_text);

  /// Reads a member that stands for `key`, other than the prompt, its uid and its ground truth.
  void read(const Member& member, std::string_view key);
  /// The line's own parameters. Throws LineError if its stops leave nothing to sample.
  [[nodiscard]] RequestSampling sampling() const;
  /// Number of responses to the prompt; 0: the run's.
  [[nodiscard]] std::uint32_t samples() const { return samples_; }
  /// Fields of the line that are honoured, and fields that have no effect.
  [[nodiscard]] const std::vector<std::string>& honoured() const { return honoured_; }
  [[nodiscard]] const std::vector<std::string>& ignored() const { return ignored_; }
  /// Honoured fields whose values differ from the run's.
  [[nodiscard]] const std::vector<std::string>& differing() const { return differing_; }

 private:
  void honour(std::string_view key, bool differs = true);
  bool read_ends(const Member& member, std::string_view key);
  bool read_draw(const Member& member, std::string_view key);
  bool read_samples(const Member& member, std::string_view key);
  [[nodiscard]] static float read_number(const Member& member, std::string_view words,
                                         bool (*valid)(float));
  void read_logit_bias(const Member& member, const Json& value);
  void read_top_k(const Member& member, const Json& value);
  void read_max_tokens(const Member& member, const Json& value);
  void read_stop_ids(const Member& member, const Json& value);
  void read_stop_strings(const Member& member, const Json& value);

  const RequestOptions& options_;
  std::int32_t vocab_;
  bool has_text_;
  SamplingParams own_;  ///< the run's parameters, overridden by the line's
  Member stops_;        ///< the last member about the end of a response
  std::uint32_t samples_ = 0;
  bool draws_ = false;  ///< some parameter for drawing tokens is honoured
  std::vector<std::string> honoured_;
  std::vector<std::string> differing_;
  std::vector<std::string> ignored_;
};

}  // namespace text
}  // namespace paceline::io
