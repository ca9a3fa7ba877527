// What a chat template does when there are no tools: its Jinja text reduced to a canonical form in
// which spacing, quotes, comments and the branches for tools no longer show.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::io::text {

struct ChatShape {
  /// The statements that remain, canonically spelled. A literal ChatML system prompt stands as
  /// $SYSTEM. Empty when the text is no template that can be read.
  std::string form;
  std::optional<std::string> default_system;  ///< what $SYSTEM stood for
  /// A branch for messages of another role than system, user and assistant is gone.
  bool other_roles_differ = false;
  [[nodiscard]] std::uint64_t fingerprint() const;  ///< FNV-1a of form
};

/// Reduces a template. Two templates of one form render the same of messages that have a role and a
/// text, whose roles are system, user and assistant, and of which `transformers` passes no more
/// than add_generation_prompt and the tokenizer's special tokens: conditions that ask for tools,
/// for another role or for reasoning beside the content are taken as false. Where
/// other_roles_differ does not hold, they render the same of other roles too.
[[nodiscard]] ChatShape shape_of(std::string_view jinja);

}  // namespace paceline::io::text
