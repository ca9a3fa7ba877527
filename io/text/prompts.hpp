// The prompt file: JSON Lines read to tokenized prompts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/chat_template.hpp"
#include "io/text/prompt_pictures.hpp"
#include "io/text/prompt_settings.hpp"
#include "io/text/request_fields.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

struct PromptOptions {
  Overlong overlong = Overlong::error;
  std::int32_t max_tokens = 0;  ///< longest prompt, tokens; 0: no limit
  std::int32_t vocab_size = 0;  ///< the model's: ids must be below; 0: the tokenizer's, if any
  /// Whether text prompts get the tokenizer's own special tokens (a bos), as in training; auto:
  /// those that do not begin with them.
  Auto<bool> add_special_tokens = {};
  /// Options for messages of lines that set none themselves.
  ChatSettings chat = {};
  /// Why there is no tokenizer, for the error of a prompt that needs one.
  std::string no_tokenizer = "there is none";
  /// Without a tokenizer, counts text as one token for every four bytes, of a meaningless id: for
  /// plans alone.
  bool estimate = false;
  /// Other names of fields in this file; every line has them.
  PromptKeys keys = {};
  /// Tokens that stand for rows of pictures and films. No prompt has one, but that of `pictures` in
  /// the places of its pictures.
  std::vector<TokenId> placeholders = {};
  /// How the model takes pictures; nullopt: it takes none, and request.no_media says why.
  std::optional<PictureOptions> pictures = {};
  /// The run's sampling. A line with its own max_tokens has its own longest prompt: the rest of
  /// request.context, where there is such a limit.
  RequestOptions request = {};
};

struct PromptSet {
  std::vector<Prompt> prompts;     ///< in the order of the file
  std::vector<std::size_t> lines;  ///< [prompts] of the file, 1-based
  /// [prompts][pictures] files of Prompt::pictures; no line where no prompt has any.
  std::vector<std::vector<PictureFile>> pictures;
  std::vector<std::string> skipped;    ///< uids left out as too long (Overlong::skip)
  std::vector<std::string> truncated;  ///< uids that lost leading tokens (Overlong::truncate)
  bool encoded = false;                ///< some prompt was text
  bool estimated = false;              ///< lengths of text are estimated (PromptOptions::estimate)
  /// Uids whose last message, the assistant's, was closed and a new turn begun by default.
  std::vector<std::string> closed;
  RequestFields fields;  ///< of all lines
};

/// Reads a file of one JSON object a line; blank lines are skipped. Fields:
///   the prompt, exactly one of, or `prompt_tokens` beside the text or messages they were made of
///     `prompt`    text, or a list of {role, content} messages
///     `messages`  a list of {role, content} messages
///     `prompt_tokens` | `input_ids` | `tokens`  a list of token ids
///   `uid`           text or integer, unique. Without one a line is named by its prompt's tokens as
///                   sampled from: content_uid(), with "-2", "-3", ... for equal ones
///   `ground_truth`  text, or any JSON, kept as compact text; or `reward_model.ground_truth` (verl)
///   `images`        a list of pictures, which picture_fields.hpp describes, for the places that
///   the
///                   prompt has: <image> in a text, parts of type image, or tokens
///   `enable_thinking`, `date_string`, `add_generation_prompt`, `continue_final_message`,
///   `chat_template_kwargs`: see chat_fields.hpp
///   `max_tokens`, `stop_ids`, `stop_strings`: see request_fields.hpp
/// A field that options.keys names stands for that key, and is kept under it; as `messages` it may
/// be text, a user's message. Every field but `uid`, `ground_truth` and token ids goes to
/// Prompt::extra_json as written, in the order of the line, without spaces: trainers want the
/// messages, reward_model and so on. `images` comes last there, with all of the prompt's pictures
/// (text::to_json()).
///
/// `tokenizer` may be null when every prompt is token ids. Text is encoded as it is; messages are
/// rendered by `chat` with the header of the assistant's answer at the end. Template options are
/// refused beside text; beside token ids, which were rendered elsewhere, they are fields like any
/// other.
///
/// Pictures are decoded once, all of them, by several threads, and take as many tokens as the model
/// has rows of them. A prompt's pixels are those that transformers' image processor makes of its
/// files as they are (images/picture.hpp, images/processor.hpp).
///
/// Throws IoError when the file cannot be read; DataError when it does not exist, and naming
/// file:line:column (column in bytes, 1-based) and the expected value: malformed JSON, a wrong
/// type, an empty prompt, a token id outside the vocabulary, a repeated uid, a uid that another
/// line has by its prompt, an over-long prompt, a picture that is absent, damaged or has no place,
/// places without pictures, a file without prompts or whose prompts were all skipped, a tokenizer
/// that does not fit `vocab_size`. Throws UsageError when options.chat has an
/// option that the template does not read, or there are no messages to render.
[[nodiscard]] PromptSet read_prompts(const std::string& path, const Tokenizer* tokenizer,
                                     const ChatTemplate* chat, const PromptOptions& options);

/// Parses the file's text; `name` stands for the file in messages.
[[nodiscard]] PromptSet parse_prompts(std::string_view text, const std::string& name,
                                      const Tokenizer* tokenizer, const ChatTemplate* chat,
                                      const PromptOptions& options);

}  // namespace paceline::io
