// The question of a prompt, for display.
#pragma once

#include <optional>
#include <string>

#include "runtime/core/request.hpp"

namespace paceline::io {

/// The text of a user's last message, or a whole prompt that is text; nullopt: the prompt was given
/// as token ids. UTF-8.
[[nodiscard]] std::optional<std::string> question_of(const Prompt& prompt);

}  // namespace paceline::io
