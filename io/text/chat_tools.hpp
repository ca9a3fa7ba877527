// Tools as chat templates tell a model of them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace paceline::io::text {

/// What a template prints where it is given tools.
enum class ToolForm : std::uint8_t {
  none,          ///< nothing that is known
  hermes,        ///< Qwen2.5, Qwen3: behind the system prompt, a line each
  llama,         ///< Llama 3.1 to 3.3: before what the user says first, indented
  kimi,          ///< Kimi-K2: a message before all others
  kimi_compact,  ///< the same without spaces
};

/// The text that a form prints of tools, an array of objects that read_as_python() gave. Hermes:
/// what follows the system prompt within its message. Llama: what precedes the first user's words
/// within theirs. Kimi: a whole message.
[[nodiscard]] std::string tools_text(ToolForm form, const nlohmann::ordered_json& tools);

}  // namespace paceline::io::text
