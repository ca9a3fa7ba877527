#include "io/text/chat_template.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "io/text/chat_shape.hpp"
#include "io/text/files.hpp"
#include "io/text/json_node.hpp"

namespace paceline::io {
namespace {

/// Shapes with a known rendering.
struct KnownShape {
  std::uint64_t fingerprint;  ///< fingerprint of ChatShape::form
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

/// Families of which render_answer() knows how messages of tools are rendered.
bool has_tool_answers(ChatFamily family) {
  return family == ChatFamily::chatml || family == ChatFamily::qwen25 ||
         family == ChatFamily::qwen3 || family == ChatFamily::llama3 ||
         family == ChatFamily::llama3_1;
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
  if (!(config != nullptr && config->find("added_tokens_decoder")) &&
      std::filesystem::exists(path)) {
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
  if (std::filesystem::exists(config_path)) {
    const text::Json document = text::parse_json(text::read_file(config_path), config_path);
    const text::JsonNode config(document, config_path, "");
    jinja = find_template(config);
    bos = find_special(directory, &config, "bos_token");
    eos = find_special(directory, &config, "eos_token");
  } else {
    bos = find_special(directory, nullptr, "bos_token");
    eos = find_special(directory, nullptr, "eos_token");
  }
  if (std::filesystem::exists(jinja_path)) {
    jinja = text::read_file(jinja_path);
    name = jinja_path;
  } else if (std::filesystem::exists(json_path)) {
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
  const auto* const known = std::ranges::find(known_shapes, fingerprint, &KnownShape::fingerprint);
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
  const auto* const tools = std::ranges::find(known_tools, text::fingerprint(shape.form_with_tools),
                                              &KnownTools::fingerprint);
  if (tools != std::end(known_tools)) result.tool_form_ = tools->form;
  result.reads_pictures_ =
      std::ranges::find(known_parts, text::fingerprint(shape.form_with_parts)) !=
      std::end(known_parts);
  result.bos_ = bos_token.value_or("");
  result.eos_ = eos_token.value_or("");
  return result;
}

}  // namespace paceline::io
