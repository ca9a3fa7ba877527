#include "io/text/chat_template.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "io/text/chat_shape.hpp"
#include "io/text/files.hpp"
#include "io/text/jinja_text.hpp"
#include "io/text/json_node.hpp"
#include "io/text/python_json.hpp"
#include "io/text/unicode.hpp"
#include "io/text/utf8.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

/// Shapes with a known rendering.
struct KnownShape {
  std::uint64_t fingerprint;  ///< of ChatShape::form
  ChatFamily family;
  ChatTemplate::Traits traits = {};
};
constexpr KnownShape known_shapes[] = {
    {0xc5ebbde1248a6893, ChatFamily::chatml},  // nothing but the messages
    {0x9c291fb88343c649, ChatFamily::chatml},  // Qwen2: with a default system prompt
    {0x5fbb6dea9c61fd95, ChatFamily::chatml},  // Qwen2-VL and 2.5-VL: with one too
    {0x9d1ceb741eb9207a, ChatFamily::qwen25},  // Qwen2.5: with one, and fixed roles
    {0x3d457888dbc49890, ChatFamily::qwen25},  // Qwen2.5 as TRL trains it
    {0x26081aa2df77fccb, ChatFamily::qwen25},  // Qwen3-Instruct-2507: no default system prompt
    {0x80c82a3bd78fd9c4, ChatFamily::qwen3},   // Qwen3 as first published
    {0x51e28ecdbce07256, ChatFamily::qwen3},   // Qwen3, whose contents may be lists
    {0x2c35050298ef9813, ChatFamily::qwen3, {.opens_thinking = true}},     // Qwen3-Thinking-2507
    {0x7eed794b06ef0156, ChatFamily::qwen3, {.keeps_reasoning = true}},    // Qwen3 as TRL trains it
    {0x953352aa0c6cd479, ChatFamily::llama2},                              // as first published
    {0x42deed8c3c9b58e7, ChatFamily::llama2},                              // with Jinja's trim
    {0x02c6e055c599204e, ChatFamily::llama3},                              // Llama 3, revised
    {0x3451e475b2107254, ChatFamily::llama3},                              // as TRL trains it
    {0xb838622579f16d86, ChatFamily::llama3, {.always_generates = true}},  // as first published
    {0x3c0d137956c4179a, ChatFamily::llama3_1},                            // Llama 3.1 and 3.3
    {0xd702ef23652dd647, ChatFamily::llama3_1},  // Llama 3.2, which would print today's date
    {0x70f699afdc727481, ChatFamily::kimi},      // Moonlight
    {0x9d360d2959dfca93, ChatFamily::kimi},      // Kimi-K2 as first published
    {0x742e5caee79c49f0, ChatFamily::kimi},      // Kimi-K2, whose messages may have names
    {0x9b5f742806baaed9, ChatFamily::r1},        // DeepSeek-R1-Distill as first published
    {0x56b66e8062cd34f1, ChatFamily::r1, {.opens_thinking = true}},
    {0x65a73b06ce3b2559, ChatFamily::r1, {.opens_thinking = true, .keeps_reasoning = true}},  // TRL
};

/// Forms with tools (ChatShape::form_with_tools) with a known rendering.
struct KnownTools {
  std::uint64_t fingerprint;
  text::ToolForm form;
};
constexpr KnownTools known_tools[] = {
    {0x616dad130dc8bdf8, text::ToolForm::hermes},        // Qwen2.5
    {0x2b08865c876a63f6, text::ToolForm::hermes},        // Qwen2.5 as TRL trains it
    {0x7754650c9f4944aa, text::ToolForm::hermes},        // Qwen3-Instruct-2507
    {0x17b7654db0cc2abd, text::ToolForm::hermes},        // Qwen3 as first published
    {0x3d9e8e2d423433ef, text::ToolForm::hermes},        // Qwen3, whose contents may be lists
    {0x677b210cdd0346ac, text::ToolForm::hermes},        // Qwen3-Thinking-2507
    {0x4ba1889510072245, text::ToolForm::hermes},        // Qwen3 as TRL trains it
    {0x65748c565626a409, text::ToolForm::llama},         // Llama 3.1 and 3.3
    {0x4926e6e8fad6bac2, text::ToolForm::llama},         // Llama 3.2
    {0x5870d28b2355149e, text::ToolForm::kimi},          // Kimi-K2 as first published
    {0x218d130adbb539d7, text::ToolForm::kimi},          // Kimi-K2, whose messages may have names
    {0x17117619b81f6245, text::ToolForm::kimi_compact},  // the same as kimi, without spaces
};

/// Forms with parts (ChatShape::form_with_parts) that render pictures as kPictureMark and texts
/// unchanged.
constexpr std::uint64_t known_parts[] = {
    0x191e78e6e507f985,  // Qwen2-VL and 2.5-VL
};

constexpr std::string_view advice =
    "; give the prompts as token ids (prompt_tokens), which python3 -m paceline_run.prompts "
    "--tokenizer DIR IN OUT makes of them by any template";

std::string hex(std::uint64_t value) {
  std::string out(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4U) out[i] = "0123456789abcdef"[value & 15U];
  return out;
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

/// Families of which render_answer() knows how messages of tools are rendered.
bool has_tool_answers(ChatFamily family) {
  return family == ChatFamily::chatml || family == ChatFamily::qwen25 ||
         family == ChatFamily::qwen3 || is_llama3(family);
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

/// A special token in a configuration. `which`: "bos_token" or "eos_token".
std::optional<std::string> find_special(const text::JsonNode& config, const char* which) {
  const std::optional<text::JsonNode> node = config.find(which);
  if (!node) return std::nullopt;
  return node->value().is_object() ? node->at("content").string() : node->string();
}

/// The special token in special_tokens_map.json, which counts if the configuration does not list
/// added tokens.
std::optional<std::string> find_special(const std::string& directory, const text::JsonNode* config,
                                        const char* which) {
  const std::string path = directory + "/special_tokens_map.json";
  if (!(config != nullptr && config->find("added_tokens_decoder")) && text::file_exists(path)) {
    const text::Json document = text::parse_json(text::read_file(path), path);
    if (auto token = find_special(text::JsonNode(document, path, ""), which)) return token;
  }
  return config != nullptr ? find_special(*config, which) : std::nullopt;
}

}  // namespace

ChatTemplate ChatTemplate::refused(std::string why) {
  ChatTemplate none;
  none.refusal_ = std::move(why);
  return none;
}

ChatTemplate ChatTemplate::load(const std::string& directory) {
  const std::string config_path = directory + "/tokenizer_config.json";
  const std::string jinja_path = directory + "/chat_template.jinja";
  const std::string json_path = directory + "/chat_template.json";
  std::optional<std::string> jinja;
  std::optional<std::string> bos;
  std::optional<std::string> eos;
  std::string name = config_path;
  if (text::file_exists(config_path)) {
    const text::Json document = text::parse_json(text::read_file(config_path), config_path);
    const text::JsonNode config(document, config_path, "");
    jinja = find_template(config);
    bos = find_special(directory, &config, "bos_token");
    eos = find_special(directory, &config, "eos_token");
  } else {
    bos = find_special(directory, nullptr, "bos_token");
    eos = find_special(directory, nullptr, "eos_token");
  }
  if (text::file_exists(jinja_path)) {
    jinja = text::read_file(jinja_path);
    name = jinja_path;
  } else if (text::file_exists(json_path)) {
    const text::Json document = text::parse_json(text::read_file(json_path), json_path);
    jinja = text::JsonNode(document, json_path, "").at("chat_template").string();
    name = json_path;
  }
  if (jinja) return recognise(*jinja, bos, name, eos);
  ChatTemplate none;
  none.refusal_ =
      directory + ": no chat_template in tokenizer_config.json and no chat_template.jinja";
  none.refusal_ += advice;
  return none;
}

ChatTemplate ChatTemplate::recognise(std::string_view jinja,
                                     const std::optional<std::string>& bos_token,
                                     const std::string& name,
                                     const std::optional<std::string>& eos_token) {
  const text::ChatShape shape = text::shape_of(jinja);
  const std::uint64_t fingerprint = text::fingerprint(shape.form);
  const auto* const known =
      std::find_if(std::begin(known_shapes), std::end(known_shapes),
                   [&](const KnownShape& k) { return k.fingerprint == fingerprint; });
  ChatTemplate result;
  if (known == std::end(known_shapes)) {
    result.refusal_ = name + ": the chat template (fingerprint " + hex(fingerprint) +
                      ") is none of the known ones: ChatML, Qwen2.5, Qwen3, Llama 2, Llama 3, "
                      "Llama 3.1 to 3.3, DeepSeek-R1-Distill, Moonlight, Kimi-K2";
    result.refusal_ += advice;
    return result;
  }
  const bool prints_eos = known->family == ChatFamily::llama2;
  const bool prints_bos = prints_eos || known->family == ChatFamily::llama3 ||
                          known->family == ChatFamily::llama3_1 || known->family == ChatFamily::r1;
  if ((prints_bos && !bos_token) || (prints_eos && !eos_token)) {
    result.refusal_ = name + ": the chat template prints bos_token" +
                      (prints_eos ? " and eos_token" : "") +
                      ", and neither "
                      "tokenizer_config.json nor special_tokens_map.json has " +
                      (prints_eos ? "both" : "one");
    result.refusal_ += advice;
    return result;
  }
  result.refusal_.clear();
  result.family_ = known->family;
  result.traits_ = known->traits;
  result.has_content_ = jinja.find("content") != std::string_view::npos;
  result.fixed_roles_ = shape.other_roles_differ || (known->family != ChatFamily::chatml &&
                                                     known->family != ChatFamily::llama3);
  result.has_tools_ = shape.other_roles_differ && has_tool_answers(known->family);
  result.default_system_ = shape.default_system;
  const auto* const tools =
      std::find_if(std::begin(known_tools), std::end(known_tools),
                   [hash = text::fingerprint(shape.form_with_tools)](const KnownTools& k) {
                     return k.fingerprint == hash;
                   });
  if (tools != std::end(known_tools)) result.tool_form_ = tools->form;
  result.reads_pictures_ =
      std::ranges::find(known_parts, text::fingerprint(shape.form_with_parts)) !=
      std::end(known_parts);
  result.bos_ = bos_token.value_or("");
  result.eos_ = eos_token.value_or("");
  return result;
}

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
