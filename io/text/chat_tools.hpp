// Tools, as chat templates print them for a model.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace paceline::io::text {

/// The form in which a template prints tools.
enum class ToolForm : std::uint8_t {
  none,          ///< tools are not printed in a known form
  hermes,        ///< Qwen2.5, Qwen3: after the system prompt, a line each
  llama,         ///< Llama 3.1 to 3.3: before the first words of the user, indented
  kimi,          ///< Kimi-K2: in a message before all others
  kimi_compact,  ///< kimi without spaces
};

/// The text that a form prints of tools, an array of objects from read_as_python(). Hermes: the
/// text after the system prompt within its message. Llama: the text before the first user's words
/// within their message. Kimi: a whole message.
[[nodiscard]] std::string tools_text(ToolForm form, const nlohmann::ordered_json& tools);

}  // namespace paceline::io::text
