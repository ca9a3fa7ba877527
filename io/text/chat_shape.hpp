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
  std::optional<std::string> default_system;        ///< what $SYSTEM stood for
  [[nodiscard]] std::uint64_t fingerprint() const;  ///< FNV-1a of form
};

/// Reduces a template. Conditions that ask for tools, for another role than system, user and
/// assistant, for reasoning beside the content, or for today's date are taken as false: a message
/// has a role and a text, and a prompt does not depend on the day.
[[nodiscard]] ChatShape shape_of(std::string_view jinja);

}  // namespace paceline::io::text
