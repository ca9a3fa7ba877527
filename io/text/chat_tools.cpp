#include "io/text/chat_tools.hpp"

#include <nlohmann/json.hpp>

#include "io/text/python_json.hpp"

namespace paceline::io::text {
namespace {

std::string hermes(const nlohmann::ordered_json& tools) {
  std::string out =
      "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
      "provided with function signatures within <tools></tools> XML tags:\n<tools>";
  for (const auto& tool : tools) out += "\n" + python_json(tool);
  return out +
         "\n</tools>\n\nFor each function call, return a json object with function name and "
         "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": "
         "<function-name>, \"arguments\": <args-json-object>}\n</tool_call>";
}

std::string llama(const nlohmann::ordered_json& tools) {
  std::string out =
      "Given the following functions, please respond with a JSON for a function call with its "
      "proper arguments that best answers the given prompt.\n\nRespond in the format {\"name\": "
      "function name, \"parameters\": dictionary of argument name and its value}.Do not use "
      "variables.\n\n";
  for (const auto& tool : tools) out += python_json(tool, {.indent = 4}) + "\n\n";
  return out;
}

}  // namespace

std::string tools_text(ToolForm form, const nlohmann::ordered_json& tools) {
  switch (form) {
    case ToolForm::none:
      break;
    case ToolForm::hermes:
      return hermes(tools);
    case ToolForm::llama:
      return llama(tools);
    case ToolForm::kimi:
    case ToolForm::kimi_compact:
      return "<|im_system|>tool_declare<|im_middle|>" +
             python_json(tools, {.compact = form == ToolForm::kimi_compact}) + "<|im_end|>";
  }
  return {};
}

}  // namespace paceline::io::text
