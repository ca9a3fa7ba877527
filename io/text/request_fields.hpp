// The fields of a prompt's line that speak of how its responses are sampled.
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

/// What lines are read against.
struct RequestOptions {
  SamplingParams sampling = {};  ///< the run's
  std::int32_t samples = 1;      ///< the run's
  std::int32_t context = 0;      ///< positions that a prompt and its response have; 0: no limit
  /// All ids that end a response which is sampled so, the model's own included; null: stop_ids.
  std::function<std::vector<TokenId>(const SamplingParams&)> stops = nullptr;
};

/// What lines had of such fields.
struct RequestFields {
  std::set<std::string> honoured;  ///< fields that some line has a value of its own for
  struct Ignored {
    std::size_t lines = 0;
    std::size_t first = 0;  ///< line, 1-based
  };
  std::map<std::string, Ignored> ignored;  ///< kept for trainers, and not acted on
};

/// What a stored prompt's line had of its own: those of `fields`, which were honoured when the
/// responses were sampled. Throws DataError, naming the prompt, where they cannot be read.
[[nodiscard]] RequestSampling stored_sampling(const Prompt& prompt,
                                              std::span<const std::string> fields,
                                              const RequestOptions& options, std::int32_t vocab);

namespace text {

/// Reads the fields of one line. Honoured are, in place of the run's own:
///   `max_tokens`    longest response, tokens
///   `stop_ids`      token ids that end a response
///   `stop_strings`  texts that do
/// null is the same as absent. Throws LineError on a value of another type, a max_tokens below the
/// run's min_tokens or without room for a prompt, an id outside the vocabulary, and on what would
/// have other responses sampled and is not supported: other parameters of sampling (of which a line
/// may repeat the run's), names that other engines have for these, images, agents.
class RequestReader {
 public:
  /// `vocab`: ids are below; 0: unknown. `has_text`: there is a tokenizer.
  RequestReader(const RequestOptions& options, std::int32_t vocab, bool has_text);

  /// A member that counts as `key`, and is neither the prompt nor its uid or ground truth.
  void read(const Member& member, std::string_view key);
  /// What the line so read says. Throws LineError where its stops leave nothing to be sampled.
  [[nodiscard]] RequestSampling sampling() const;
  /// Fields of the line that are honoured, and those that are not acted on.
  [[nodiscard]] const std::vector<std::string>& honoured() const { return honoured_; }
  [[nodiscard]] const std::vector<std::string>& ignored() const { return ignored_; }

 private:
  void read_max_tokens(const Member& member, const Json& value);
  void read_stop_ids(const Member& member, const Json& value);
  void read_stop_strings(const Member& member, const Json& value);

  const RequestOptions& options_;
  std::int32_t vocab_;
  bool has_text_;
  SamplingParams own_;  ///< the run's, and over them what the line says
  Member stops_;        ///< the last that says what ends a response
  std::vector<std::string> honoured_;
  std::vector<std::string> ignored_;
};

}  // namespace text
}  // namespace paceline::io
