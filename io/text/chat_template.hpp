// Chat messages to the text a model was trained on, for the template families that are known.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace paceline::io {

struct ChatMessage {
  std::string role;
  std::string content;  ///< UTF-8
};

struct ChatOptions {
  bool add_generation_prompt = true;  ///< end with the header of the assistant's answer
  bool enable_thinking = true;        ///< Qwen3 alone: false closes an empty <think> block
};

enum class ChatFamily : std::uint8_t {
  none,      ///< no template, or one that is not known: render() says why
  chatml,    ///< <|im_start|>role ... <|im_end|>, perhaps with a default system prompt
  qwen25,    ///< ChatML, a default system prompt, fixed roles
  qwen3,     ///< ChatML, no default system prompt, reasoning of past answers dropped
  llama3,    ///< <|start_header_id|>role<|end_header_id|> ... <|eot_id|>
  llama3_1,  ///< Llama 3.1, 3.2, 3.3: the same with a header of dates
};

/// A chat template recognised by the statements and literals of its Jinja text and rendered
/// natively; there is no Jinja engine. Const methods are thread-safe.
///
/// What a template derives from the day it runs on is fixed, since a prompt must be the same
/// tomorrow: Llama 3.1 and later give "26 Jul 2024", the date their templates name themselves.
/// Tools are not rendered.
class ChatTemplate {
 public:
  ChatTemplate() = default;  ///< none

  /// Reads DIR/chat_template.jinja, or else `chat_template` of DIR/tokenizer_config.json (a string,
  /// or a list of named ones of which "default" is taken), and `bos_token` of the latter. A
  /// template that is absent or unknown is no error here, since a run of token ids needs none:
  /// render() throws. Throws IoError when a file that exists cannot be read, DataError when it is
  /// malformed.
  [[nodiscard]] static ChatTemplate load(const std::string& directory);
  /// Recognises a template's text; `name` stands for the file in messages.
  [[nodiscard]] static ChatTemplate recognise(std::string_view jinja, std::string_view bos_token,
                                              const std::string& name);

  [[nodiscard]] ChatFamily family() const { return family_; }
  /// Why render() would refuse; empty when the family is known.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

  /// The text of a conversation; encode it without special tokens. Throws DataError when the
  /// template is absent or unknown, there is no message, or a role is one it does not render.
  [[nodiscard]] std::string render(std::span<const ChatMessage> messages,
                                   const ChatOptions& options = {}) const;

 private:
  ChatFamily family_ = ChatFamily::none;
  bool has_default_system_ = false;
  std::string default_system_;     ///< used when the first message is no system prompt
  bool always_generates_ = false;  ///< the template adds the answer's header unasked
  std::string bos_;
  std::string refusal_ = "there is no chat template";
};

}  // namespace paceline::io
