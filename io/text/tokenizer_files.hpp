// Files of a model's directory from which `transformers` makes a tokenizer.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/text/json_node.hpp"
#include "io/text/parts.hpp"

namespace paceline::io::text {

/// A token as `transformers` writes it: its text alone, which is `special` or not, or an object
/// with its flags, which may make it special.
[[nodiscard]] AddedToken read_added_token(const JsonNode& node, bool special);
/// The tokens of tokenizer_config.json's added_tokens_decoder with their ids, each with its place.
[[nodiscard]] std::vector<std::pair<JsonNode, AddedToken>> read_added_tokens_decoder(
    const JsonNode& config);
/// Places of the special tokens that tokenizer_config.json names, as bos_token and the like and in
/// additional_special_tokens.
[[nodiscard]] std::vector<JsonNode> named_special_tokens(const JsonNode& config);

/// tokenizer_config.json, special_tokens_map.json and added_tokens.json, parsed, as far as they
/// change the tokenizer of tokenizer.json. Their tokens are added as by `transformers` 4 and 5;
/// where the two differ, or the files contradict each other, the tokenizer is refused.
class OtherFiles {
 public:
  /// Throws DataError naming the file when one is malformed.
  explicit OtherFiles(const TokenizerFiles& files);

  /// Adds tokens that tokenizer.json lacks, and flags of tokens it has. `added`: the added tokens
  /// that it lists; `model_size`: the number of tokens of its model. Throws DataError where a token
  /// would have another id than in the files, or where `transformers` 4 and 5 differ.
  void add_tokens(const Tokenizer::Parts& parts, std::size_t model_size,
                  std::vector<AddedToken>& added) const;

  /// Compares their settings of spaces and of special tokens around text with tokenizer.json's
  /// `root`. Throws as add_tokens(); doubts about some texts alone go to Parts::special_doubt and
  /// Parts::warnings.
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
