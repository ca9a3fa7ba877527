// Canonical form of a chat template. Spacing, quotes, comments and branches for inputs that it
// never gets are removed from its Jinja text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::io::text {

struct ChatShape {
  /// The remaining statements in canonical spelling. A literal system prompt of ChatML or Kimi is
  /// replaced by $SYSTEM. Empty: the text is no readable template.
  std::string form;
  std::optional<std::string> default_system;  ///< the prompt replaced by $SYSTEM; nullopt: none
  /// Whether a branch for roles other than system, user and assistant was removed.
  bool other_roles_differ = false;
  /// The statements that remain if tools are passed, with the same system prompt replaced.
  std::string form_with_tools;
  /// The statements that remain if contents may be lists of parts, such as pictures; also replaced.
  std::string form_with_parts;
};

/// FNV-1a of a form.
[[nodiscard]] std::uint64_t fingerprint(std::string_view form);

/// Reduces a template. Two templates with the same form render messages in the same way, if each
/// message has a role (system, user or assistant) and a text, and `transformers` passes only
/// add_generation_prompt and the tokenizer's special tokens. Conditions on tools, on other roles
/// and on reasoning outside the content are taken as false. Unless other_roles_differ, other roles
/// are rendered in the same way too. Two templates with the same form_with_tools also do so if a
/// list of tools is passed; with the same form_with_parts, if contents are parts and add_vision_id
/// is not set.
[[nodiscard]] ChatShape shape_of(std::string_view jinja);

}  // namespace paceline::io::text
