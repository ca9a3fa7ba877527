// The fields of a prompt's line that speak to the chat template.
#pragma once

#include <vector>

#include "io/text/chat_template.hpp"
#include "io/text/json_line.hpp"

namespace paceline::io::text {

/// How the messages of a line are to be rendered: `base`, and over it what the line asks for by
///   `enable_thinking`  true or false
///   `date_string`      the date that Llama 3.1 and later name
///   `chat_template_kwargs`  an object of these
/// where null is the same as absent. Throws LineError when an option has another type, is given
/// twice and differently, is not read by `chat`, or is one that is never rendered: `tools`,
/// `chat_template`, an `add_generation_prompt` that is false, a `continue_final_message` that is
/// true, and any other name in chat_template_kwargs.
[[nodiscard]] ChatOptions read_chat_fields(const std::vector<Member>& members,
                                           const ChatTemplate& chat, const ChatOptions& base);

/// Throws LineError when a line asks for any of these things, to which `reason` gives the reply:
/// its prompt is not rendered by a template.
void refuse_chat_fields(const std::vector<Member>& members, const std::string& reason);

}  // namespace paceline::io::text
