// Answers to a response's turns, as the tokens that continue the response.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/text/chat_template.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/core/types.hpp"

namespace paceline::io {

/// Encodes only the text after a turn: tokens that were sampled or given before stay unchanged.
/// Thread-safe.
class TurnEncoder {
 public:
  /// References outlive this. `options`: for the header of the next turn.
  TurnEncoder(const ChatTemplate& chat, const Tokenizer& tokenizer, ChatOptions options)
      : chat_(chat), tokenizer_(tokenizer), options_(std::move(options)) {}

  /// The tokens of these messages and of the header of the next turn. `last`: last token of the
  /// ended turn. Throws DataError as ChatTemplate::render_answer() does, or if a text is not UTF-8.
  [[nodiscard]] std::vector<TokenId> encode(std::span<const ChatMessage> messages,
                                            TokenId last) const;
  /// A text as one message: a tool's if the template renders tools, else a user's.
  [[nodiscard]] ChatMessage message_of(std::string text) const;
  /// Whether the template is known. Without one, texts are encoded unchanged.
  [[nodiscard]] bool has_template() const { return chat_.family() != ChatFamily::none; }
  [[nodiscard]] std::vector<TokenId> encode_plainly(const std::string& text) const;

 private:
  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  ChatOptions options_;
};

}  // namespace paceline::io
