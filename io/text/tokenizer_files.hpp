// The files in a model's directory from which `transformers` makes a tokenizer.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/text/json_node.hpp"
#include "io/text/parts.hpp"

namespace paceline::io::text {

/// Reads a token as `transformers` writes it: only its text, with `special` as its flag, or an
/// object with its flags, which may also make it special.
[[nodiscard]] AddedToken read_added_token(const JsonNode& node, bool special);
/// The tokens in tokenizer_config.json's added_tokens_decoder, with their ids and places.
[[nodiscard]] std::vector<std::pair<JsonNode, AddedToken>> read_added_tokens_decoder(
    const JsonNode& config);
/// Places of the special tokens that tokenizer_config.json names: bos_token and similar keys, and
/// additional_special_tokens.
[[nodiscard]] std::vector<JsonNode> named_special_tokens(const JsonNode& config);

/// tokenizer_config.json, special_tokens_map.json and added_tokens.json, parsed as far as they
/// change the tokenizer of tokenizer.json. Their tokens are added as by `transformers` 4 and 5. If
/// these two differ, or the files contradict each other, the tokenizer is refused.
class OtherFiles {
 public:
  /// Throws DataError, naming the file, if one is malformed.
  explicit OtherFiles(const TokenizerFiles& files);

  /// Adds tokens that tokenizer.json lacks, and flags of tokens that it has. `added`: the added
  /// tokens that it lists; `model_size`: number of tokens of its model. Throws DataError if a token
  /// would have another id than in the files, or if `transformers` 4 and 5 differ.
  void add_tokens(const Tokenizer::Parts& parts, std::size_t model_size,
                  std::vector<AddedToken>& added) const;

  /// Compares the settings for spaces and for special tokens around text with those in `root`,
  /// tokenizer.json. Throws as add_tokens() does. Doubts about only some texts go to
  /// Parts::special_doubt and Parts::warnings.
  void check(const JsonNode& root, Tokenizer::Parts& parts) const;

 private:
  struct File {
    std::string path;
    Json json;
    [[nodiscard]] JsonNode root() const { return {json, path, ""}; }
  };
  static std::optional<File> parse(const std::string& path, const std::optional<std::string>& text);

  [[nodiscard]] std::optional<JsonNode> setting(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const;
  void check_spaces(Tokenizer::Parts& parts) const;
  void check_template(Tokenizer::Parts& parts) const;

  class Additions;
  std::optional<File> config_, map_, added_;
};

}  // namespace paceline::io::text
