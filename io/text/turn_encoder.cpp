#include "io/text/turn_encoder.hpp"

#include <utility>

namespace paceline::io {

std::vector<TokenId> TurnEncoder::encode(std::span<const ChatMessage> messages,
                                         TokenId last) const {
  const bool ended = chat_.ends_turn(tokenizer_.bytes_of(last));
  return tokenizer_.encode(chat_.render_answer(messages, ended, options_));
}

ChatMessage TurnEncoder::message_of(std::string text) const {
  return {chat_.has_tools() ? "tool" : "user", std::move(text)};
}

std::vector<TokenId> TurnEncoder::encode_plainly(const std::string& text) const {
  return tokenizer_.encode(text);
}

}  // namespace paceline::io
