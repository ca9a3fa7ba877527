// The fields of a prompt's line that speak to the chat template.
#pragma once

#include <span>
#include <vector>

#include "io/text/chat_template.hpp"
#include "io/text/json_line.hpp"
#include "io/text/prompt_settings.hpp"

namespace paceline::io::text {

struct ChatFields {
  ChatOptions options;
  /// The last message is the assistant's, and neither the line nor the configuration says whether
  /// it goes on: it is closed, and a new turn begun.
  bool closes_answer = false;
};

/// How the messages of a line are to be rendered: by the configuration, and over it by what the
/// line asks for by
///   `enable_thinking`  true or false
///   `date_string`      the date that Llama 3.1 and later name
///   `add_generation_prompt`   false: end without the header of the assistant's answer
///   `continue_final_message`  true: end within the last message, whoever's it is
///   `chat_template_kwargs`    an object of these
/// where null is the same as absent. The configuration continues the assistant's messages alone.
/// Throws LineError when an option has another type, is given twice and differently, is not read by
/// `chat`, both of add_generation_prompt and continue_final_message are true, or an option is one
/// that is never rendered: `tools`, `chat_template`, and any other name in chat_template_kwargs.
[[nodiscard]] ChatFields read_chat_fields(const std::vector<Member>& members,
                                          const ChatTemplate& chat, const ChatSettings& configured,
                                          std::span<const ChatMessage> messages);

/// Throws LineError when a line asks for any of these things, to which `reason` gives the reply:
/// its prompt is not rendered by a template.
void refuse_chat_fields(const std::vector<Member>& members, const std::string& reason);

}  // namespace paceline::io::text
