#include "io/text/chat_template.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <vector>

#include "io/text/chat_shape.hpp"
#include "io/text/files.hpp"
#include "io/text/json_node.hpp"
#include "io/text/unicode.hpp"
#include "io/text/utf8.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

/// The shapes whose rendering is known.
struct KnownShape {
  std::uint64_t fingerprint;  ///< of ChatShape::form
  ChatFamily family;
  bool always_generates = false;
};
constexpr KnownShape known_shapes[] = {
    {0xc5ebbde1248a6893, ChatFamily::chatml},  // nothing but the messages
    {0x9c291fb88343c649, ChatFamily::chatml},  // Qwen2: a default system prompt
    {0x9d1ceb741eb9207a, ChatFamily::qwen25},  // Qwen2.5: the same, and roles of its own
    {0x26081aa2df77fccb, ChatFamily::qwen25},  // Qwen3-Instruct-2507: no default system prompt
    {0x80c82a3bd78fd9c4, ChatFamily::qwen3},   // Qwen3 as first published
    {0x51e28ecdbce07256, ChatFamily::qwen3},   // Qwen3 once contents may be lists
    {0x02c6e055c599204e, ChatFamily::llama3},  // Llama 3, revised
    {0xb838622579f16d86, ChatFamily::llama3, true},  // Llama 3 as first published
    {0xc58076e0304a71d3, ChatFamily::llama3_1},      // Llama 3.1, 3.2 and 3.3
};

constexpr std::string_view advice =
    "; give the prompts as token ids instead (prompt_tokens), rendered by the model's own tools";

std::string hex(std::uint64_t value) {
  std::string out(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4U) out[i] = "0123456789abcdef"[value & 15U];
  return out;
}

/// White space at the ends as Python's str.strip() sees it: White_Space and four separators.
std::string_view trim(std::string_view s) {
  const auto white = [](char32_t c) { return text::is_white_space(c) || (c >= 0x1C && c <= 0x1F); };
  while (!s.empty()) {
    const text::CodePoint c = text::decode_utf8(s, 0);
    if (!white(c.value) || c.size == 0) break;
    s.remove_prefix(c.size);
  }
  while (!s.empty()) {
    std::size_t at = s.size() - 1;
    while (at > 0 && (s[at] & 0xC0) == 0x80) --at;
    if (const text::CodePoint c = text::decode_utf8(s, at); !white(c.value) || c.size == 0) break;
    s.remove_suffix(s.size() - at);
  }
  return s;
}

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

/// The last thing a user asked, or the last message when no user spoke. Qwen3 shows the reasoning
/// of the answers after it alone.
std::size_t last_query(std::span<const ChatMessage> messages) {
  for (std::size_t i = messages.size(); i-- > 0;) {
    const std::string& content = messages[i].content;
    const bool tool_response =
        content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (messages[i].role == "user" && !tool_response) return i;
  }
  return messages.size() - 1;
}

/// An earlier answer, split into reasoning and what was said.
std::string qwen3_answer(const ChatMessage& message, bool after_query, bool last) {
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
  if (!after_query || (!last && reasoning.empty())) return chatml("assistant", said);
  return chatml("assistant", "<think>\n" + std::string(trim_newlines(reasoning, true, true)) +
                                 "\n</think>\n\n" + std::string(trim_newlines(said, true, false)));
}

/// Text for a message: quoted, on one line and not long.
std::string shown(const std::string& text) {
  const std::string whole =
      text::Json(text).dump(-1, ' ', true, text::Json::error_handler_t::replace);
  return whole.size() <= 60 ? whole : whole.substr(0, 60) + "...";
}

/// A role stands between marks of the template, so it is a word: no mark, bracket or white space,
/// which could begin or end a message.
bool is_word(std::string_view text) {
  if (text.empty()) return false;
  for (std::size_t at = 0; at < text.size();) {
    const text::CodePoint c = text::decode_utf8(text, at);
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

/// The families whose templates give each role a branch of its own would drop another in silence.
void require_roles(std::span<const ChatMessage> messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant") {
      throw DataError("message " + std::to_string(i + 1) + ": role '" + role +
                      "' is not rendered; supported: system, user, assistant");
    }
  }
}

std::optional<std::string> find_template(const text::JsonNode& config) {
  const std::optional<text::JsonNode> node = config.find("chat_template");
  if (!node) return std::nullopt;
  if (!node->value().is_array()) return node->string();
  for (std::size_t i = 0; i < node->array_size(); ++i) {
    const text::JsonNode named = node->item(i);
    if (named.at("name").string() == "default") return named.at("template").string();
  }
  node->refuse("expected one named \"default\"");
}

std::string find_bos(const text::JsonNode& config) {
  const std::optional<text::JsonNode> node = config.find("bos_token");
  if (!node) return "";
  return node->value().is_object() ? node->at("content").string() : node->string();
}

}  // namespace

ChatTemplate ChatTemplate::load(const std::string& directory) {
  const std::string config_path = directory + "/tokenizer_config.json";
  const std::string jinja_path = directory + "/chat_template.jinja";
  std::optional<std::string> jinja;
  std::string bos;
  std::string name = config_path;
  if (text::file_exists(config_path)) {
    const text::Json document = text::parse_json(text::read_file(config_path), config_path);
    const text::JsonNode config(document, config_path, "");
    jinja = find_template(config);
    bos = find_bos(config);
  }
  if (text::file_exists(jinja_path)) {
    jinja = text::read_file(jinja_path);
    name = jinja_path;
  }
  if (jinja) return recognise(*jinja, bos, name);
  ChatTemplate none;
  none.refusal_ =
      directory + ": no chat_template in tokenizer_config.json and no chat_template.jinja";
  none.refusal_ += advice;
  return none;
}

ChatTemplate ChatTemplate::recognise(std::string_view jinja, std::string_view bos_token,
                                     const std::string& name) {
  const text::ChatShape shape = text::shape_of(jinja);
  const std::uint64_t fingerprint = shape.fingerprint();
  const auto* const known =
      std::find_if(std::begin(known_shapes), std::end(known_shapes),
                   [&](const KnownShape& k) { return k.fingerprint == fingerprint; });
  ChatTemplate result;
  if (known == std::end(known_shapes)) {
    result.refusal_ =
        name + ": the chat template (fingerprint " + hex(fingerprint) +
        ") is none of the known ones: ChatML, Qwen2.5, Qwen3, Llama 3, Llama 3.1 to 3.3";
    result.refusal_ += advice;
    return result;
  }
  result.refusal_.clear();
  result.family_ = known->family;
  result.always_generates_ = known->always_generates;
  result.default_system_ = shape.default_system.value_or("");
  result.has_default_system_ = shape.default_system.has_value();
  result.bos_ = bos_token;
  return result;
}

void ChatTemplate::require_reads(const ChatOptions& options) const {
  if (options.enable_thinking && !reads_enable_thinking()) {
    throw DataError("this model's chat template does not read enable_thinking; that of Qwen3 does");
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
  const bool system_first = messages.front().role == "system";
  std::string out;
  switch (family_) {
    case ChatFamily::none:
      break;
    case ChatFamily::qwen25:
      require_roles(messages);
      [[fallthrough]];
    case ChatFamily::chatml:
      if (has_default_system_ && !system_first) out += chatml("system", default_system_);
      for (const ChatMessage& m : messages) out += chatml(m.role, m.content);
      if (options.add_generation_prompt) out += chatml_answer;
      break;
    case ChatFamily::qwen3: {
      require_roles(messages);
      const std::size_t query = last_query(messages);
      for (std::size_t i = 0; i < messages.size(); ++i) {
        const ChatMessage& m = messages[i];
        out += m.role == "assistant" ? qwen3_answer(m, i > query, i + 1 == messages.size())
                                     : chatml(m.role, m.content);
      }
      if (options.add_generation_prompt) out += chatml_answer;
      if (options.add_generation_prompt && !options.enable_thinking.value_or(true)) {
        out += "<think>\n\n</think>\n\n";
      }
      break;
    }
    case ChatFamily::llama3_1:
      require_roles(messages);
      out = bos_ +
            llama("system", "Cutting Knowledge Date: December 2023\nToday Date: " +
                                options.date.value_or("26 Jul 2024") + "\n\n" +
                                std::string(system_first ? trim(messages.front().content) : ""));
      for (const ChatMessage& m : messages.subspan(system_first ? 1 : 0)) {
        out += llama(m.role, trim(m.content));
      }
      if (options.add_generation_prompt) out += llama_answer;
      break;
    case ChatFamily::llama3:
      out = bos_;
      for (const ChatMessage& m : messages) out += llama(m.role, trim(m.content));
      if (options.add_generation_prompt || always_generates_) out += llama_answer;
      break;
  }
  return out;
}

}  // namespace paceline::io
