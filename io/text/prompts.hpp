// The prompt file: JSON Lines to tokenized prompts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/chat_template.hpp"
#include "io/text/prompt_settings.hpp"
#include "io/text/request_fields.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

struct PromptOptions {
  Overlong overlong = Overlong::error;
  std::int32_t max_tokens = 0;  ///< longest prompt, tokens; 0: no limit
  std::int32_t vocab_size = 0;  ///< of the model: ids must be below; 0: the tokenizer's, if any
  /// Whether text prompts get the tokenizer's own special tokens (a bos), as the model saw text in
  /// training; auto: those that do not begin with them.
  Auto<bool> add_special_tokens = {};
  /// For the messages of every line that does not say otherwise itself.
  ChatSettings chat = {};
  /// Why there is no tokenizer, for a prompt that needs one.
  std::string no_tokenizer = "there is none";
  /// Where there is no tokenizer text counts as a token for every four bytes, of an id that means
  /// nothing: for plans alone.
  bool estimate = false;
  /// Fields that go by other names in this file: every line has them.
  PromptKeys keys = {};
  /// A line with a max_tokens of its own has a longest prompt of its own: what that leaves of
  /// request.context, where there is such a limit.
  RequestOptions request = {};
};

struct PromptSet {
  std::vector<Prompt> prompts;         ///< in the order of the file
  std::vector<std::size_t> lines;      ///< [prompts] of the file, 1-based
  std::vector<std::string> skipped;    ///< uids left out as too long (Overlong::skip)
  std::vector<std::string> truncated;  ///< uids that lost tokens at the front (Overlong::truncate)
  bool encoded = false;                ///< some prompt was text
  bool estimated = false;              ///< lengths of text are (PromptOptions::estimate)
  /// Uids whose last message, the assistant's, is closed and a new turn begun, unasked.
  std::vector<std::string> closed;
  RequestFields fields;  ///< of all lines
};

/// Reads a file of one JSON object a line; blank lines are skipped. Fields:
///   the prompt, exactly one of, or `prompt_tokens` beside the text or messages they were made of
///     `prompt`    text, or a list of {role, content} messages
///     `messages`  a list of {role, content} messages
///     `prompt_tokens` | `input_ids` | `tokens`  a list of token ids
///   `uid`           text or integer, unique. Without one a line is known by its prompt's tokens,
///   as
///                   they are sampled from: content_uid(), with "-2", "-3", ... for equal ones
///   `ground_truth`  text, or any JSON, kept as compact text; or `reward_model.ground_truth` (verl)
///   `enable_thinking`, `date_string`, `add_generation_prompt`, `continue_final_message`,
///   `chat_template_kwargs`: see chat_fields.hpp
///   `max_tokens`, `stop_ids`, `stop_strings`: see request_fields.hpp
/// A field that options.keys names counts as the one of that key, and is kept under it; as
/// `messages` it may be text, which is what the user says. Every field but `uid`, `ground_truth`
/// and token ids goes to Prompt::extra_json as it is written, in the order of the line, without the
/// spaces: trainers want the messages, reward_model and so on.
///
/// `tokenizer` may be null when every prompt is token ids. Text is encoded as it is; messages are
/// rendered by `chat` with the header of the assistant's answer at the end. What speaks to the
/// template is refused beside text, and beside token ids, which were rendered elsewhere, is a field
/// like any other.
///
/// Throws IoError when the file cannot be read; DataError when there is none, and naming
/// file:line:column (column in bytes, 1-based) and what was expected: malformed JSON, a wrong type,
/// an empty prompt, a token id outside the vocabulary, a repeated uid, a uid that is another line's
/// by its prompt, an over-long prompt, a file
/// without prompts or whose prompts were all skipped, a tokenizer that does not fit `vocab_size`.
/// Throws UsageError when options.chat asks for what the template does not read, or there are no
/// messages to render.
[[nodiscard]] PromptSet read_prompts(const std::string& path, const Tokenizer* tokenizer,
                                     const ChatTemplate* chat, const PromptOptions& options);

/// The same from the file's text; `name` stands for the file in messages.
[[nodiscard]] PromptSet parse_prompts(std::string_view text, const std::string& name,
                                      const Tokenizer* tokenizer, const ChatTemplate* chat,
                                      const PromptOptions& options);

}  // namespace paceline::io
