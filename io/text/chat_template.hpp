// Chat messages rendered to the text a model was trained on, for known template families.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "io/text/chat_tools.hpp"

namespace paceline::io {

struct ChatMessage {
  std::string role;
  std::string content;  ///< UTF-8; of parts: their renderings, one after the other
};

/// The rendering of a picture by templates that read pictures: its placeholder between marks.
inline constexpr std::string_view kPictureMark = "<|vision_start|><|image_pad|><|vision_end|>";

/// Options of a template in addition to messages. Only options that the template reads may be set.
struct ChatOptions {
  bool add_generation_prompt = true;  ///< end with the header of the assistant's answer
  /// Whether to end within the last message, whoever wrote it, so that it continues; no header.
  bool continue_final_message = false;
  std::optional<bool> enable_thinking;  ///< Qwen3 only: false closes an empty <think> block
  std::optional<std::string> date;      ///< Llama 3.1 and later: "Today Date"; one line of text
  std::string tools;                    ///< JSON: a list of objects; empty: none
};

enum class ChatFamily : std::uint8_t {
  none,      ///< no template, or an unknown one: render() tells why
  chatml,    ///< <|im_start|>role ... <|im_end|>, perhaps with a default system prompt
  qwen25,    ///< ChatML, a default system prompt, fixed roles
  qwen3,     ///< ChatML, no default system prompt, reasoning of past answers dropped or kept
  llama2,    ///< [INST] ... [/INST], the system prompt within, turns between bos and eos
  llama3,    ///< <|start_header_id|>role<|end_header_id|> ... <|eot_id|>
  llama3_1,  ///< Llama 3.1, 3.2, 3.3: llama3 with a header of dates
  kimi,      ///< Moonlight, Kimi-K2: <|im_user|>user<|im_middle|> ... <|im_end|>, a default system
             ///< prompt
  r1,  ///< DeepSeek-R1-Distill: <｜User｜> ... <｜Assistant｜>, reasoning of answers dropped
};

/// A chat template that is recognised by the statements and literals of its Jinja text, and
/// rendered by native code, as `transformers` 5 renders it; there is no Jinja engine. Const methods
/// are thread-safe.
///
/// Prompts must be the same tomorrow, so no template gets today's date. Without ChatOptions::date,
/// Llama 3.1 and later get "26 Jul 2024", the date in their templates.
class ChatTemplate {
 public:
  ChatTemplate() = default;  ///< no template
  /// No template, with the reason for which render() throws.
  [[nodiscard]] static ChatTemplate refused(std::string why);

  /// Reads DIR/chat_template.jinja, or else `chat_template` of DIR/chat_template.json (as
  /// processors have it), or else that of DIR/tokenizer_config.json (a string, or the "default" one
  /// of a list). Reads `bos_token` and `eos_token` of the latter or of special_tokens_map.json. An
  /// absent or unknown template is no error here, for a run of token ids needs none; but render()
  /// throws. Throws IoError if an existing file cannot be read, DataError if it is malformed.
  [[nodiscard]] static ChatTemplate load(const std::string& directory);
  /// Recognises a template's text; `name` is the file's in messages. A template that prints
  /// `bos_token` or `eos_token` is refused if the token is missing.
  [[nodiscard]] static ChatTemplate recognise(
      std::string_view jinja, const std::optional<std::string>& bos_token, const std::string& name,
      const std::optional<std::string>& eos_token = std::nullopt);

  [[nodiscard]] ChatFamily family() const { return family_; }
  /// The reason for which render() throws; empty: the family is known.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

  [[nodiscard]] bool reads_enable_thinking() const {
    return family_ == ChatFamily::qwen3 && !traits_.opens_thinking;
  }
  [[nodiscard]] bool reads_date() const { return family_ == ChatFamily::llama3_1; }
  /// Whether contents may be parts: texts, and pictures rendered as kPictureMark.
  [[nodiscard]] bool reads_pictures() const { return reads_pictures_; }
  [[nodiscard]] bool reads_tools() const { return tool_form_ != text::ToolForm::none; }
  /// Throws DataError if an option is set that this template does not read, or if the date is more
  /// than one line of text.
  void require_reads(const ChatOptions& options) const;

  /// Renders a conversation; encode the text without special tokens. Throws DataError if the
  /// template is absent or unknown, there is no message, an option is not read, a role is not
  /// rendered or not a plain word, or the message to continue is not in the text.
  [[nodiscard]] std::string render(std::span<const ChatMessage> messages,
                                   const ChatOptions& options = {}) const;

  /// Renders messages that answer an assistant's turn, and the header of its next turn, as the text
  /// that continues the conversation: nothing before it is rendered, or encoded, again. `ended`:
  /// the turn ended with one of the template's own marks (ends_turn()); if not, the text begins
  /// with one. A tool's messages are rendered as such if the template has a branch for them. Throws
  /// DataError as render() does, and on an assistant's message.
  [[nodiscard]] std::string render_answer(std::span<const ChatMessage> messages, bool ended,
                                          const ChatOptions& options = {}) const;
  /// Whether a token with this spelling ends an assistant's turn.
  [[nodiscard]] bool ends_turn(std::string_view token) const;
  /// Whether a tool's messages are rendered as such.
  [[nodiscard]] bool has_tools() const { return has_tools_; }

  /// Differences between templates of a family.
  struct Traits {
    bool always_generates = false;  ///< adds the answer's header even if not asked for
    bool opens_thinking = false;    ///< the answer's header opens a <think> block
    bool keeps_reasoning = false;   ///< keeps the reasoning of every past answer
  };

 private:
  [[nodiscard]] std::string render_plainly(std::span<const ChatMessage> messages,
                                           const ChatOptions& options) const;
  [[nodiscard]] std::string render_messages(std::span<const ChatMessage> messages,
                                            const ChatOptions& options) const;
  [[nodiscard]] std::string render_qwen3(std::span<const ChatMessage> messages,
                                         const ChatOptions& options) const;
  [[nodiscard]] std::string answer_header(const ChatOptions& options) const;

  ChatFamily family_ = ChatFamily::none;
  Traits traits_;
  bool has_content_ = true;   ///< mentions it verbatim, else `transformers` continues no message
  bool fixed_roles_ = false;  ///< roles other than system, user, assistant fail
  bool has_tools_ = false;    ///< render_answer() knows a tool's messages
  bool reads_pictures_ = false;
  text::ToolForm tool_form_ = text::ToolForm::none;
  std::optional<std::string> default_system_;  ///< used if the first message is not a system prompt
  std::string bos_, eos_;
  std::string refusal_ = "there is no chat template";
};

}  // namespace paceline::io
