// What a prompt asks, for human eyes.
#pragma once

#include <optional>
#include <string>

#include "runtime/core/request.hpp"

namespace paceline::io {

/// The text of the last message that a user says, or, where the prompt is text, all of it; nothing
/// where it was given as token ids. UTF-8.
[[nodiscard]] std::optional<std::string> question_of(const Prompt& prompt);

}  // namespace paceline::io
