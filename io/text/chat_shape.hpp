// Canonical form of a chat template: spacing, quotes, comments and the branches for what is never
// passed to it are removed from its Jinja text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::io::text {

struct ChatShape {
  /// The remaining statements in canonical spelling. A literal system prompt of ChatML or
  /// Kimi is replaced by $SYSTEM. Empty when the text is no readable template.
  std::string form;
  std::optional<std::string> default_system;  ///< the prompt replaced by $SYSTEM
  /// A branch for messages of roles other than system, user and assistant was removed.
  bool other_roles_differ = false;
  /// The statements that remain where tools are passed, with the same system prompt replaced.
  std::string form_with_tools;
  /// The statements that remain where contents may be lists of parts, as of pictures, likewise.
  std::string form_with_parts;
};

/// FNV-1a of a form.
[[nodiscard]] std::uint64_t fingerprint(std::string_view form);

/// Reduces a template. Two templates of one form render the same of messages that have a role
/// (system, user or assistant) and a text, where `transformers` passes no more than
/// add_generation_prompt and the tokenizer's special tokens: conditions on tools, on another role
/// or on reasoning beside the content are taken as false. Unless other_roles_differ, they render
/// the same of other roles too. Two of one form_with_tools render the same where a list of tools is
/// passed as well, two of one form_with_parts where contents are parts and add_vision_id is not
/// set.
[[nodiscard]] ChatShape shape_of(std::string_view jinja);

}  // namespace paceline::io::text
