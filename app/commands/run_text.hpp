// The text of a stored run, for people.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/run/stored_run.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/core/request.hpp"

namespace paceline::app {

/// A prompt's tokens, with only the first token of each picture's rows.
[[nodiscard]] std::vector<TokenId> without_rows(const Prompt& prompt);
/// [pictures] Path of each picture's file, or "in the prompt, 512 bytes". All are empty if the
/// prompt's fields do not name them.
[[nodiscard]] std::vector<std::string> picture_names(const Prompt& prompt);

/// The text of a run's tokens. If the run's model or tokenizer is not there, warns and shows ids.
class RunText {
 public:
  explicit RunText(const io::StoredRun& run);
  /// Text that is safe to print on a terminal, or token ids, sixteen in a line.
  [[nodiscard]] std::string of(std::span<const TokenId> tokens) const;
  [[nodiscard]] const std::optional<io::Tokenizer>& tokenizer() const { return tokenizer_; }

 private:
  std::optional<io::Tokenizer> tokenizer_;
};

}  // namespace paceline::app
