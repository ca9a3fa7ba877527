// Makes text for people from the tokens of a stored run.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/run/stored_run.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/core/request.hpp"

namespace paceline::app {

/// A prompt's tokens, with only the first of each picture's equal placeholder tokens.
[[nodiscard]] std::vector<TokenId> without_rows(const Prompt& prompt);
/// [pictures] Path of each picture's file or, for a picture that the prompt itself holds, a text
/// such as "in the prompt, 512 bytes". Empty texts if the prompt's fields cannot be read.
[[nodiscard]] std::vector<std::string> picture_names(const Prompt& prompt);

/// Decodes a run's tokens. If no tokenizer can be loaded, warns and shows token ids instead.
class RunText {
 public:
  explicit RunText(const io::StoredRun& run);
  /// Returns text that is safe to print on a terminal, or token ids, at most 16 on a line.
  [[nodiscard]] std::string of(std::span<const TokenId> tokens) const;
  [[nodiscard]] const std::optional<io::Tokenizer>& tokenizer() const { return tokenizer_; }

 private:
  std::optional<io::Tokenizer> tokenizer_;
};

}  // namespace paceline::app
