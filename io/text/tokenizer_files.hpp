// The files of a model's directory that `transformers` makes a tokenizer of.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "io/text/json_node.hpp"
#include "io/text/parts.hpp"

namespace paceline::io::text {

/// What tokenizer_config.json, special_tokens_map.json and added_tokens.json say of a tokenizer,
/// parsed, beside the tokenizer.json that it is made of. What they add is added, as `transformers`
/// 4 and 5 add it; where the two differ from each other, or the files contradict each other, the
/// tokenizer is refused.
class OtherFiles {
 public:
  /// Throws DataError naming the file when one is malformed.
  explicit OtherFiles(const TokenizerFiles& files);

  /// Adds tokens that tokenizer.json lacks, and flags of those it has. `added`: the added tokens
  /// that it lists; `model_size`: the number of tokens of its model. Throws DataError where a token
  /// would have another id than the files say, or where `transformers` 4 and 5 take it otherwise.
  void add_tokens(const Tokenizer::Parts& parts, std::size_t model_size,
                  std::vector<AddedToken>& added) const;

  /// Compares what they say of spaces and of special tokens around text with what was read of
  /// tokenizer.json's `root`. Throws as add_tokens(); what concerns some texts alone goes to
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
