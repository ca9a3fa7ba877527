#include "io/workers/worker_line.hpp"

#include <cmath>

#include "io/workers/worker_json.hpp"

namespace paceline::io {
namespace {

using Json = WorkerJson;

std::string member(const std::string& name, const std::string& value) {
  return Json(name).dump() + ":" + value + ",";
}

std::string shown(std::string_view line) {
  constexpr std::size_t kMost = 80;
  return "'" + std::string(line.substr(0, kMost)) + (line.size() > kMost ? "...'" : "'");
}

}  // namespace

std::string worker_id(RequestId id) {
  return std::to_string(id.prompt) + ":" + std::to_string(id.sample);
}

std::string prompt_members(const Prompt& prompt, const std::optional<std::string>& truth,
                           const Tokenizer& tokenizer, bool send_tokens) {
  Json fields = Json::parse(prompt.extra_json);
  const auto take = [&fields](const char* name, const char* otherwise) {
    const auto found = fields.find(name);
    if (found == fields.end() || found->is_null()) return std::string(otherwise);
    std::string text = dump(*found);
    fields.erase(name);
    return text;
  };
  std::string text = member("uid", dump(prompt.uid));
  text += member("prompt", dump(tokenizer.decode(prompt.tokens)));
  text += member("data_source", take("data_source", "null"));
  text += member("ground_truth", truth.value_or("null"));
  text += member("extra_info", take("extra_info", "{}"));
  for (const char* said : {"prompt", "messages", "reward_model"}) fields.erase(said);
  text += member("fields", dump(fields));
  if (send_tokens) text += member("prompt_tokens", ids_text(prompt.tokens));
  return text;
}

std::string request_line(const Trajectory& response, const std::string& prompt,
                         const Tokenizer& tokenizer, bool send_tokens) {
  std::string text = "{" + member("id", dump(worker_id(response.id))) + prompt;
  text += member("response", dump(tokenizer.decode(response.tokens)));
  if (send_tokens) text += member("response_tokens", ids_text(response.tokens));
  text += "\"finish_reason\":" + dump(name_of(response.finish_reason)) + "}\n";
  return text;
}

WorkerAnswer read_answer(std::string_view line, RequestId id) {
  WorkerAnswer answer;
  const Json json = Json::parse(line, nullptr, false);
  const auto garbage = [&](const std::string& what) {
    answer.text = what + " in " + shown(line);
    return answer;
  };
  if (const std::string fault = id_fault(json, id); !fault.empty()) return garbage(fault);
  if (const auto error = json.find("error"); error != json.end() && !error->is_null()) {
    answer.kind = WorkerAnswer::Kind::error;
    answer.text = error->is_string() ? error->get<std::string>() : dump(*error);
    return answer;
  }
  const auto score = json.find("score");
  if (score == json.end() || !score->is_number()) return garbage("no number as score");
  answer.score = static_cast<float>(score->get<double>());
  if (!std::isfinite(answer.score)) return garbage("no finite score");
  if (const auto extra = json.find("extra"); extra != json.end() && !extra->is_null()) {
    if (!extra->is_object()) return garbage("no object as extra");
    if (!extra->empty()) answer.extra = dump(*extra);
  }
  answer.kind = WorkerAnswer::Kind::score;
  return answer;
}

}  // namespace paceline::io
