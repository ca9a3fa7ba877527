#include "io/text/question.hpp"

#include <nlohmann/json.hpp>

namespace paceline::io {
namespace {

using Json = nlohmann::json;

/// The text of a content: the content itself, or its parts that are text.
std::string text_of(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (const Json& part : content.is_array() ? content : Json::array()) {
    const auto piece = part.is_object() ? part.find("text") : part.end();
    if (piece != part.end() && piece->is_string()) text += piece->get<std::string>();
  }
  return text;
}

}  // namespace

std::optional<std::string> question_of(const Prompt& prompt) {
  const Json fields = Json::parse(prompt.extra_json, nullptr, false);
  if (!fields.is_object()) return std::nullopt;
  for (const char* name : {"messages", "prompt"}) {
    const auto said = fields.find(name);
    if (said == fields.end()) continue;
    if (said->is_string()) return said->get<std::string>();
    if (!said->is_array()) continue;
    for (auto message = said->rbegin(); message != said->rend(); ++message) {
      if (message->is_object() && message->value("role", Json()) == "user")
        return text_of(message->value("content", Json()));
    }
  }
  return std::nullopt;
}

}  // namespace paceline::io
