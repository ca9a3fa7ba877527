#include "io/workers/environment_line.hpp"

#include <cmath>
#include <span>
#include <utility>

#include "io/workers/worker_json.hpp"

namespace paceline::io {
namespace {

using Json = WorkerJson;

std::string shown(std::string_view line) {
  constexpr std::size_t kMost = 80;
  const std::string part(line.substr(0, kMost));
  return dump(Json(part)) + (line.size() > kMost ? "..." : "");
}

/// Reads an observation. Returns false if it is none.
bool read_observation(const Json& said, TurnAnswer& answer) {
  if (said.is_string()) {
    answer.observation = said.get<std::string>();
    return true;
  }
  if (!said.is_array() || said.empty()) return false;
  if (said.front().is_object()) {
    std::vector<ChatMessage> messages;
    for (const Json& message : said) {
      const bool sound = message.is_object() && message.contains("role") &&
                         message["role"].is_string() && message.contains("content") &&
                         message["content"].is_string();
      if (!sound) return false;
      messages.push_back(
          {message["role"].get<std::string>(), message["content"].get<std::string>()});
    }
    answer.observation = std::move(messages);
    return true;
  }
  std::vector<TokenId> tokens;
  for (const Json& token : said) {
    if (!token.is_number_integer()) return false;
    const auto id = token.get<std::int64_t>();
    if (id < 0 || id > std::numeric_limits<TokenId>::max()) return false;
    tokens.push_back(static_cast<TokenId>(id));
  }
  answer.observation = std::move(tokens);
  return true;
}

}  // namespace

std::string turn_line(const Trajectory& response, std::size_t turn, const std::string& prompt,
                      const Tokenizer& tokenizer, const TurnTelling& telling) {
  const bool answered = turn < response.turns.size();
  const std::size_t first = turn == 0 ? 0 : response.turns[turn - 1].end;
  const std::size_t end = answered ? response.turns[turn].given : response.tokens.size();
  const FinishReason reason = answered ? response.turns[turn].reason : response.finish_reason;
  const std::span<const TokenId> tokens = std::span(response.tokens).subspan(first, end - first);
  std::string text =
      "{\"id\":" + dump(worker_id(response.id)) + ",\"turn\":" + std::to_string(turn) + "," +
      prompt + "\"text\":" + dump(tokenizer.decode(tokens)) + ",\"tokens\":" + ids_text(tokens) +
      ",\"finish_reason\":" + dump(name_of(reason)) +
      ",\"last\":" + (telling.last ? "true" : "false");
  if (telling.replay) {
    const std::span<const TokenId> given =
        std::span(response.tokens).subspan(end, response.turns[turn].end - end);
    text += ",\"replay\":true,\"observation\":" + ids_text(given);
  }
  return text + "}\n";
}

std::string close_line(RequestId id) {
  return "{\"id\":" + dump(worker_id(id)) + ",\"close\":true}\n";
}

TurnAnswer read_turn_answer(std::string_view line, RequestId id, bool counts) {
  TurnAnswer answer;
  const Json json = Json::parse(line, nullptr, false);
  const auto garbage = [&](const std::string& what) {
    answer.text = what + " in " + shown(line);
    return answer;
  };
  if (const std::string fault = id_fault(json, id); !fault.empty()) return garbage(fault);
  const auto member = [&json](const char* name) -> const Json* {
    const auto at = json.find(name);
    return at == json.end() || at->is_null() ? nullptr : &*at;
  };
  if (!counts) {
    answer.kind = TurnAnswer::Kind::answer;
    return answer;
  }
  if (const Json* error = member("error")) {
    answer.kind = TurnAnswer::Kind::error;
    answer.text = "says: " + (error->is_string() ? error->get<std::string>() : dump(*error));
    return answer;
  }
  const auto wrong = [&](const std::string& what) {
    TurnAnswer error;
    error.kind = TurnAnswer::Kind::error;
    error.text = "wrote " + what + " in " + shown(line);
    return error;
  };
  if (const Json* done = member("done")) {
    if (!done->is_boolean()) return wrong("neither true nor false as done");
    answer.done = done->get<bool>();
  }
  if (const Json* observation = member("observation")) {
    if (!read_observation(*observation, answer))
      return wrong("neither text, messages nor token ids as observation");
  }
  if (const Json* reward = member("reward")) {
    if (!reward->is_number()) return wrong("no number as reward");
    answer.reward = static_cast<float>(reward->get<double>());
    if (!std::isfinite(answer.reward)) return wrong("no finite reward");
  }
  if (const Json* extra = member("extra")) {
    if (!extra->is_object()) return wrong("no object as extra");
    if (!extra->empty()) answer.extra = dump(*extra);
  }
  answer.kind = TurnAnswer::Kind::answer;
  return answer;
}

}  // namespace paceline::io
