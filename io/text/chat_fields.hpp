// Fields of a prompt's line that are options of the chat template.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "io/text/chat_template.hpp"
#include "io/text/json_line.hpp"
#include "io/text/prompt_settings.hpp"

namespace paceline::io::text {

struct ChatFields {
  ChatOptions options;
  /// Whether the last message is the assistant's, and neither the line nor the configuration
  /// decides if it continues: it is then closed, and a new turn begins.
  bool closes_answer = false;
};

/// Reads the rendering options of a line's messages: the configuration's, overridden by the line's
///   `enable_thinking`  true or false
///   `date_string`      the date that Llama 3.1 and later name
///   `add_generation_prompt`   false: end without the header of the assistant's answer
///   `continue_final_message`  true: end within the last message, whoever wrote it
///   `tools`            a list of objects, as the template shows them to the model
///   `chat_template_kwargs`    an object of these
/// where null is the same as absent. The configuration continues only messages of an assistant.
/// Throws LineError if an option has another type, is given twice with different values, is not
/// read by `chat`, or is never rendered (`chat_template`, and any other name in
/// chat_template_kwargs), and if add_generation_prompt and continue_final_message are both true.
[[nodiscard]] ChatFields read_chat_fields(const std::vector<Member>& members,
                                          const ChatTemplate& chat, const ChatSettings& configured,
                                          std::span<const ChatMessage> messages);

/// Bytes of a line's tools without spaces, for estimates; 0: it has none.
[[nodiscard]] std::size_t bytes_of_tools(const std::vector<Member>& members);

/// Throws LineError with `reason` if a line has any of these options, because its prompt is not
/// rendered by a template.
void refuse_chat_fields(const std::vector<Member>& members, const std::string& reason);

}  // namespace paceline::io::text
