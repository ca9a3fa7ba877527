// Answers to a response's turns as the tokens that go on after them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/text/chat_template.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/core/types.hpp"

namespace paceline::io {

/// Encodes the text after a turn, and nothing before it: tokens once sampled or given stay as they
/// are. Thread-safe.
class TurnEncoder {
 public:
  /// References outlive this. `options`: of the answer's header.
  TurnEncoder(const ChatTemplate& chat, const Tokenizer& tokenizer, ChatOptions options)
      : chat_(chat), tokenizer_(tokenizer), options_(std::move(options)) {}

  /// The tokens of these messages, and of the header of the next turn. `last`: the turn's last
  /// token. Throws DataError as ChatTemplate::render_answer() does, or where a text is no UTF-8.
  [[nodiscard]] std::vector<TokenId> encode(std::span<const ChatMessage> messages,
                                            TokenId last) const;
  /// A text as one message: a tool's where the template has tools, else a user's.
  [[nodiscard]] ChatMessage message_of(std::string text) const;
  /// Whether there is a known template. Without one texts are encoded as they are.
  [[nodiscard]] bool has_template() const { return chat_.family() != ChatFamily::none; }
  [[nodiscard]] std::vector<TokenId> encode_plainly(const std::string& text) const;

 private:
  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  ChatOptions options_;
};

}  // namespace paceline::io
