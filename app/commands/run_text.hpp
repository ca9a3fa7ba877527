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

/// A prompt's tokens, each picture's rows as the first of them.
[[nodiscard]] std::vector<TokenId> without_rows(const Prompt& prompt);
/// Where a prompt's pictures are: a path, or "in the prompt, 512 bytes"; empty where its fields do
/// not say.
[[nodiscard]] std::vector<std::string> picture_names(const Prompt& prompt);

/// The text of a run's tokens, or ids where its model has no tokenizer or is gone, with a warning.
class RunText {
 public:
  explicit RunText(const io::StoredRun& run);
  /// Text that a terminal prints; ids in lines of sixteen.
  [[nodiscard]] std::string of(std::span<const TokenId> tokens) const;
  [[nodiscard]] const std::optional<io::Tokenizer>& tokenizer() const { return tokenizer_; }

 private:
  std::optional<io::Tokenizer> tokenizer_;
};

}  // namespace paceline::app
