// How the known chat templates render messages. chat_template.cpp recognises the templates.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "io/config/utf8.hpp"
#include "io/text/chat_template.hpp"
#include "io/text/jinja_text.hpp"
#include "io/text/json_node.hpp"
#include "io/text/python_json.hpp"
#include "io/text/unicode.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

std::string_view trim_newlines(std::string_view s, bool front, bool back) {
  while (front && !s.empty() && s.front() == '\n') s.remove_prefix(1);
  while (back && !s.empty() && s.back() == '\n') s.remove_suffix(1);
  return s;
}

std::string chatml(std::string_view role, std::string_view content) {
  return "<|im_start|>" + std::string(role) + "\n" + std::string(content) + "<|im_end|>\n";
}
constexpr std::string_view chatml_answer = "<|im_start|>assistant\n";

std::string llama(std::string_view role, std::string_view content) {
  return "<|start_header_id|>" + std::string(role) + "<|end_header_id|>\n\n" +
         std::string(content) + "<|eot_id|>";
}
constexpr std::string_view llama_answer = "<|start_header_id|>assistant<|end_header_id|>\n\n";

/// A message of Kimi, with a role that its templates know.
std::string kimi(std::string_view role, std::string_view content) {
  return "<|im_" + std::string(role) + "|>" + std::string(role) + "<|im_middle|>" +
         std::string(content) + "<|im_end|>";
}
constexpr std::string_view kimi_answer = "<|im_assistant|>assistant<|im_middle|>";

/// Index of a user's last question, or of the last message if no user spoke. Qwen3 shows the
/// reasoning only of answers after it.
std::size_t last_query(std::span<const ChatMessage> messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string& content = messages[i].content;
    const bool tool_response =
        content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (messages[i].role == "user" && !tool_response) return i;
  }
  return messages.size() - 1;
}

/// An earlier answer, split into reasoning and speech. `shows`: keep its reasoning; `even_none`:
/// even if it is empty.
std::string qwen3_answer(const ChatMessage& message, bool shows, bool even_none) {
  constexpr std::string_view open = "<think>";
  constexpr std::string_view close = "</think>";
  std::string_view said = message.content;
  std::string_view reasoning;
  if (const std::size_t first = said.find(close); first != std::string_view::npos) {
    reasoning = trim_newlines(said.substr(0, first), false, true);
    if (const std::size_t at = reasoning.rfind(open); at != std::string_view::npos) {
      reasoning.remove_prefix(at + open.size());
    }
    reasoning = trim_newlines(reasoning, true, false);
    said = trim_newlines(said.substr(said.rfind(close) + close.size()), true, false);
  }
  if (!shows || (!even_none && reasoning.empty())) return chatml("assistant", said);
  return chatml("assistant", "<think>\n" + std::string(trim_newlines(reasoning, true, true)) +
                                 "\n</think>\n\n" + std::string(trim_newlines(said, true, false)));
}

/// The rendering of DeepSeek-R1-Distill, which puts the last system prompt first.
std::string r1(std::span<const ChatMessage> messages, const std::string& bos,
               bool keeps_reasoning) {
  constexpr std::string_view close = "</think>";
  std::string_view system;
  std::string turns;
  for (const ChatMessage& m : messages) {
    std::string_view said = m.content;
    if (m.role == "system") {
      system = said;
    } else if (m.role == "user") {
      turns += "<｜User｜>" + std::string(said);
    } else {
      if (const std::size_t at = said.rfind(close); !keeps_reasoning && at != std::string::npos) {
        said.remove_prefix(at + close.size());
      }
      turns += "<｜Assistant｜>" + std::string(said) + "<｜end▁of▁sentence｜>";
    }
  }
  return bos + std::string(system) + turns;
}

/// The rendering of Llama 2. It has no header for an answer; a user begins, and turns alternate.
std::string llama2(std::span<const ChatMessage> messages, const std::string& bos,
                   const std::string& eos) {
  const bool system_first = messages.front().role == "system";
  std::string out;
  for (std::size_t i = system_first ? 1 : 0; i < messages.size(); ++i) {
    const ChatMessage& m = messages[i];
    const std::size_t turn = i - (system_first ? 1 : 0);
    if (m.role != (turn % 2 == 0 ? "user" : "assistant")) {
      throw DataError("message " + std::to_string(i + 1) + ": role '" + m.role +
                      "' is out of turn; after a system prompt, if any, this model's chat template "
                      "takes user and assistant in turns");
    }
    const std::string content = turn == 0 && system_first ? "<<SYS>>\n" + messages.front().content +
                                                                "\n<</SYS>>\n\n" + m.content
                                                          : m.content;
    const std::string said(text::strip(content));
    out += m.role == "user" ? bos + "[INST] " + said + " [/INST]" : " " + said + " " + eos;
  }
  return out;
}

/// A text for error messages: quoted, on one line and short.
std::string shown(const std::string& text) {
  const std::string whole =
      text::Json(text).dump(-1, ' ', true, text::Json::error_handler_t::replace);
  return whole.size() <= 60 ? whole : whole.substr(0, 60) + "...";
}

/// Whether a role is a word. Between a template's marks it must have no mark, bracket or white
/// space, which could begin or end a message.
bool is_word(std::string_view text) {
  if (text.empty()) return false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text, at);
    const bool ascii_word = (c.value >= '0' && c.value <= '9') ||
                            (c.value >= 'A' && c.value <= 'Z') ||
                            (c.value >= 'a' && c.value <= 'z') || c.value == '_' || c.value == '-';
    if (c.size == 0 || (c.value < 0x80 ? !ascii_word : text::is_white_space(c.value))) return false;
    at += c.size;
  }
  return true;
}

void require_words(std::span<const ChatMessage> messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (is_word(messages[i].role)) continue;
    throw DataError("message " + std::to_string(i + 1) + ": role " + shown(messages[i].role) +
                    " is no role; expected a word, such as system, user, assistant");
  }
}

/// Throws on other roles, which templates with a branch for each role would silently drop.
void require_roles(std::span<const ChatMessage> messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant") {
      throw DataError("message " + std::to_string(i + 1) + ": role '" + role +
                      "' is not rendered; supported: system, user, assistant");
    }
  }
}

bool is_llama3(ChatFamily family) {
  return family == ChatFamily::llama3 || family == ChatFamily::llama3_1;
}

}  // namespace

void ChatTemplate::require_reads(const ChatOptions& options) const {
  if (options.enable_thinking && !reads_enable_thinking()) {
    throw DataError("this model's chat template does not read enable_thinking; that of Qwen3 does");
  }
  if (!options.tools.empty() && !reads_tools()) {
    throw DataError(
        "tools are not rendered by this model's chat template; those of Qwen2.5, Qwen3, Llama 3.1 "
        "to 3.3 and Kimi-K2 are, as they were published");
  }
  if (!options.date) return;
  if (!reads_date()) {
    throw DataError(
        "this model's chat template does not read a date; that of Llama 3.1 to 3.3 does");
  }
  const bool plain = std::all_of(options.date->begin(), options.date->end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7F && c != '<' && c != '>';
  });
  if (options.date->empty() || !plain) {
    throw DataError("expected a date on one line, such as '26 Jul 2024', found " +
                    shown(*options.date));
  }
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages,
                                 const ChatOptions& options) const {
  if (family_ == ChatFamily::none) throw DataError(refusal_);
  if (messages.empty()) throw DataError("a conversation has no messages");
  require_reads(options);
  require_words(messages);
  if (fixed_roles_) require_roles(messages);
  if (!options.continue_final_message) return render_plainly(messages, options);

  // A mark after the message shows where it ends in the text, and whether the template trimmed it,
  // as in `transformers`.
  constexpr std::string_view mark = "CONTINUE_FINAL_MESSAGE_TAG ";
  constexpr std::string_view bare = mark.substr(0, mark.size() - 1);
  std::vector<ChatMessage> marked(messages.begin(), messages.end());
  marked.back().content += mark;
  ChatOptions open = options;
  open.add_generation_prompt = false;
  std::string out = render_plainly(marked, open);
  const std::size_t at = out.rfind(bare);
  if (!has_content_ || at == std::string::npos ||
      out.find(text::strip(messages.back().content)) == std::string::npos) {
    throw DataError(
        "the last message cannot be continued (continue_final_message): the template leaves out "
        "parts of it, as the reasoning of an answer");
  }
  const bool kept = out.compare(at, mark.size(), mark) == 0;
  out.resize(at);
  if (!kept) out.resize(text::strip(out, false, true).size());
  return out;
}

std::string ChatTemplate::render_plainly(std::span<const ChatMessage> messages,
                                         const ChatOptions& options) const {
  if (options.tools.empty()) return render_messages(messages, options);
  const auto tools = text::read_as_python(options.tools);
  if (tools.empty()) {
    ChatOptions plain = options;
    plain.tools.clear();
    return render_messages(messages, plain);
  }
  const std::string told = text::tools_text(tool_form_, tools);
  const bool system_first = messages.front().role == "system";
  std::vector<ChatMessage> said(messages.begin(), messages.end());
  switch (tool_form_) {
    case text::ToolForm::none:
      break;
    case text::ToolForm::kimi:
    case text::ToolForm::kimi_compact:
      return told + render_messages(messages, options);
    case text::ToolForm::hermes:
      if (!system_first) said.insert(said.begin(), {"system", default_system_.value_or("")});
      if (system_first || default_system_) said.front().content += "\n\n";
      said.front().content += told;
      break;
    case text::ToolForm::llama: {
      if (said.size() < (system_first ? 2U : 1U))
        throw DataError("tools stand in the first message of a user, and there is none");
      ChatMessage& first = said[system_first ? 1 : 0];
      first = {"user", told + std::string(text::strip(first.content))};
      break;
    }
  }
  return render_messages(said, options);
}

/// Renders messages. If the template prints tools in a message, `messages` contain them already.
std::string ChatTemplate::render_messages(std::span<const ChatMessage> messages,
                                          const ChatOptions& options) const {
  const bool system_first = messages.front().role == "system";
  std::string out;
  switch (family_) {
    case ChatFamily::none:
      break;
    case ChatFamily::qwen25:
    case ChatFamily::chatml:
      if (default_system_ && !system_first) out += chatml("system", *default_system_);
      for (const ChatMessage& m : messages) out += chatml(m.role, m.content);
      if (options.add_generation_prompt) out += answer_header(options);
      break;
    case ChatFamily::qwen3:
      out = render_qwen3(messages, options);
      break;
    case ChatFamily::kimi:
      if (default_system_ && !system_first) out = kimi("system", *default_system_);
      for (const ChatMessage& m : messages) out += kimi(m.role, m.content);
      if (options.add_generation_prompt) out += answer_header(options);
      break;
    case ChatFamily::llama2:
      out = llama2(messages, bos_, eos_);
      break;
    case ChatFamily::llama3_1:
      out =
          bos_ + llama("system",
                       std::string(options.tools.empty() ? "" : "Environment: ipython\n") +
                           "Cutting Knowledge Date: December 2023\nToday Date: " +
                           options.date.value_or("26 Jul 2024") + "\n\n" +
                           std::string(system_first ? text::strip(messages.front().content) : ""));
      for (std::size_t i = system_first ? 1 : 0; i < messages.size(); ++i) {
        const bool told = !options.tools.empty() && i == (system_first ? 1U : 0U);
        const std::string& said = messages[i].content;  // with tools it is stripped already
        out += llama(messages[i].role, told ? said : text::strip(said));
      }
      if (options.add_generation_prompt) out += answer_header(options);
      break;
    case ChatFamily::llama3:
      out = bos_;
      for (const ChatMessage& m : messages) out += llama(m.role, text::strip(m.content));
      if (options.add_generation_prompt || traits_.always_generates) out += answer_header(options);
      break;
    case ChatFamily::r1:
      out = r1(messages, bos_, traits_.keeps_reasoning);
      if (options.add_generation_prompt) out += answer_header(options);
      break;
  }
  return out;
}

std::string ChatTemplate::render_qwen3(std::span<const ChatMessage> messages,
                                       const ChatOptions& options) const {
  const std::size_t query = last_query(messages);
  std::string out;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& m = messages[i];
    const bool last = i + 1 == messages.size();
    out += m.role == "assistant" ? qwen3_answer(m, traits_.keeps_reasoning || i > query,
                                                traits_.keeps_reasoning || last)
                                 : chatml(m.role, m.content);
  }
  return options.add_generation_prompt ? out + answer_header(options) : out;
}

/// The text before an assistant's own words.
std::string ChatTemplate::answer_header(const ChatOptions& options) const {
  std::string out;
  switch (family_) {
    case ChatFamily::none:
    case ChatFamily::llama2:
      break;
    case ChatFamily::chatml:
    case ChatFamily::qwen25:
      out = chatml_answer;
      break;
    case ChatFamily::qwen3:
      out = chatml_answer;
      if (traits_.opens_thinking) out += "<think>\n";
      if (!options.enable_thinking.value_or(true)) out += "<think>\n\n</think>\n\n";
      break;
    case ChatFamily::llama3:
    case ChatFamily::llama3_1:
      out = llama_answer;
      break;
    case ChatFamily::kimi:
      out = kimi_answer;
      break;
    case ChatFamily::r1:
      out = "<｜Assistant｜>";
      if (traits_.opens_thinking) out += "<think>\n";
      break;
  }
  return out;
}

bool ChatTemplate::ends_turn(std::string_view token) const {
  switch (family_) {
    case ChatFamily::none:
      break;
    case ChatFamily::chatml:
    case ChatFamily::qwen25:
    case ChatFamily::qwen3:
    case ChatFamily::kimi:
      return token == "<|im_end|>";
    case ChatFamily::llama3:
    case ChatFamily::llama3_1:
      return token == "<|eot_id|>" || token == "<|eom_id|>";
    case ChatFamily::llama2:
      return token == eos_;
    case ChatFamily::r1:
      return token == "<｜end▁of▁sentence｜>";
  }
  return false;
}

namespace {

/// Answers in ChatML, where neighbouring messages of tools share one user's turn.
std::string chatml_answers(std::span<const ChatMessage> messages, bool has_tools) {
  std::string out;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& m = messages[i];
    if (!has_tools || m.role != "tool") {
      out += chatml(m.role, m.content);
      continue;
    }
    if (i == 0 || messages[i - 1].role != "tool") out += "<|im_start|>user";
    out += "\n<tool_response>\n" + m.content + "\n</tool_response>";
    if (i + 1 == messages.size() || messages[i + 1].role != "tool") out += "<|im_end|>\n";
  }
  return out;
}

/// Answers in Llama 3. In 3.1 a tool speaks as ipython, in JSON.
std::string llama_answers(std::span<const ChatMessage> messages, bool has_tools) {
  std::string out;
  for (const ChatMessage& m : messages) {
    const bool tool = has_tools && (m.role == "tool" || m.role == "ipython");
    out += tool ? llama("ipython", text::Json(m.content).dump())
                : llama(m.role, text::strip(m.content));
  }
  return out;
}

}  // namespace

std::string ChatTemplate::render_answer(std::span<const ChatMessage> messages, bool ended,
                                        const ChatOptions& options) const {
  if (family_ == ChatFamily::none) throw DataError(refusal_);
  if (messages.empty()) throw DataError("an answer has no messages");
  require_reads(options);
  require_words(messages);
  for (const ChatMessage& m : messages) {
    const bool known =
        m.role == "user" || m.role == "system" ||
        (has_tools_ && (m.role == "tool" || (m.role == "ipython" && is_llama3(family_))));
    if (m.role == "assistant" || (fixed_roles_ && !known)) {
      throw DataError("role '" + m.role +
                      "' does not answer an assistant by this model's chat "
                      "template; supported: system, user" +
                      (has_tools_ ? ", tool" : ""));
    }
  }
  std::string out;
  switch (family_) {
    case ChatFamily::none:
      break;
    case ChatFamily::chatml:
    case ChatFamily::qwen25:
    case ChatFamily::qwen3:
      out = (ended ? "\n" : "<|im_end|>\n") + chatml_answers(messages, has_tools_);
      break;
    case ChatFamily::llama3:
    case ChatFamily::llama3_1:
      out = (ended ? "" : "<|eot_id|>") + llama_answers(messages, has_tools_);
      break;
    case ChatFamily::llama2:
      out = (ended ? "" : " " + eos_) + llama2(messages, bos_, eos_);
      break;
    case ChatFamily::kimi:
      if (!ended) out = "<|im_end|>";
      for (const ChatMessage& m : messages) out += kimi(m.role, m.content);
      break;
    case ChatFamily::r1:
      out = (ended ? "" : "<｜end▁of▁sentence｜>") + r1(messages, "", true);
      break;
  }
  return out + answer_header(options);
}

}  // namespace paceline::io
