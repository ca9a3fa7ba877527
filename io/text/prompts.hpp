// Reader of the prompt file: JSON Lines in, tokenized prompts out.
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
  std::int32_t vocab_size = 0;  ///< all ids are below; 0: the tokenizer's, if any
  /// Whether text prompts get the tokenizer's own special tokens (a bos), as in training; auto:
  /// only prompts that do not begin with them.
  Auto<bool> add_special_tokens = {};
  /// Options for messages of lines that do not set their own.
  ChatSettings chat = {};
  /// Why there is no tokenizer, for errors about prompts that need one.
  std::string no_tokenizer = "there is none";
  /// Whether to estimate the length of text if there is no tokenizer: one token, with a meaningless
  /// id, for every four bytes. Only for plans.
  bool estimate = false;
  /// Other names of fields in this file; every line must have them.
  PromptKeys keys = {};
  /// Tokens that stand for rows of pictures and films. Prompts must have none, except the token of
  /// `pictures` at the places of their pictures.
  std::vector<TokenId> placeholders = {};
  /// The form in which the model takes pictures; nullopt: it takes none; see request.no_media.
  std::optional<PictureOptions> pictures = {};
  /// The run's sampling. If request.context is set, a line with its own max_tokens has its own
  /// longest prompt: the rest of this context.
  RequestOptions request = {};
};

struct PromptSet {
  std::vector<Prompt> prompts;     ///< in the order of the file
  std::vector<std::size_t> lines;  ///< [prompts] line numbers in the file, from 1
  /// [prompts][pictures] files of Prompt::pictures; empty: no prompt has any.
  std::vector<std::vector<PictureFile>> pictures;
  std::vector<std::string> skipped;    ///< uids of prompts left out as too long (Overlong::skip)
  std::vector<std::string> truncated;  ///< uids that lost leading tokens (Overlong::truncate)
  bool encoded = false;                ///< some prompt was given as text
  bool estimated = false;              ///< lengths of text are estimates (PromptOptions::estimate)
  /// Uids of prompts whose last message, the assistant's, was closed by default for a new turn.
  std::vector<std::string> closed;
  RequestFields fields;  ///< request fields of all lines
};

/// Reads a file of one JSON object a line; blank lines are skipped. Fields:
///   the prompt: exactly one of these, or `prompt_tokens` and the text or messages they are from
///     `prompt`    text, or a list of {role, content} messages
///     `messages`  a list of {role, content} messages
///     `prompt_tokens` | `input_ids` | `tokens`  a list of token ids
///   `uid`           text or integer, unique. Without one, content_uid() of the prompt's tokens
///                   names the line, with "-2", "-3", ... for equal prompts
///   `ground_truth`  text, or any JSON, kept as compact text; or `reward_model.ground_truth` (verl)
///   `images`        a list of pictures (picture_fields.hpp) for the prompt's places: <image> in a
///                   text, parts of type image, or tokens
///   `enable_thinking`, `date_string`, `add_generation_prompt`, `continue_final_message`,
///   `chat_template_kwargs`: see chat_fields.hpp
///   `max_tokens`, `stop_ids`, `stop_strings`: see request_fields.hpp
/// A field that options.keys names stands for that key, and is kept under it; as `messages` it may
/// be text, a user's message. Every field except `uid`, `ground_truth` and token ids goes to
/// Prompt::extra_json as written, in the order of the line, without spaces: trainers need messages,
/// reward_model and so on. `images` comes last there, with all of the prompt's pictures
/// (text::to_json()).
///
/// `tokenizer` may be null if every prompt is token ids. Text is encoded unchanged; messages are
/// rendered by `chat`, with the header of the assistant's answer at the end. Template options are
/// refused with text. With token ids, which were rendered elsewhere, they are fields like any
/// other.
///
/// Each picture is decoded once, all by several threads, and takes as many tokens as the model has
/// rows of it. A prompt's pixels are those that transformers' image processor makes of its
/// unchanged files (images/picture.hpp, images/processor.hpp).
///
/// Throws IoError if the file cannot be read, and DataError if it does not exist. Throws DataError
/// naming file:line:column (column in bytes, from 1) and the expected value on malformed JSON, a
/// wrong type, an empty prompt, a token id outside the vocabulary, a repeated uid, a uid that is
/// another line's content_uid(), an over-long prompt, a picture that is absent, damaged or without
/// a place, places without pictures, a file without prompts or with only skipped ones, and a
/// tokenizer that does not fit `vocab_size`. Throws UsageError if options.chat has an option that
/// the template does not read, or there are no messages to render.
[[nodiscard]] PromptSet read_prompts(const std::string& path, const Tokenizer* tokenizer,
                                     const ChatTemplate* chat, const PromptOptions& options);

/// Parses a file's text; `name` is the file's in messages.
[[nodiscard]] PromptSet parse_prompts(std::string_view text, const std::string& name,
                                      const Tokenizer* tokenizer, const ChatTemplate* chat,
                                      const PromptOptions& options);

}  // namespace paceline::io
