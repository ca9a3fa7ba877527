#include "io/reward/ground_truth.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "io/reward/answer_match.hpp"
#include "io/workers/worker_line.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

using Json = nlohmann::ordered_json;

/// A member of an object by its name, or by its name after those of the objects around it.
const Json* find(const Json& object, const std::string& path) {
  if (!object.is_object()) return nullptr;
  if (const auto whole = object.find(path); whole != object.end()) return &*whole;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    const auto outer = object.find(path.substr(0, dot));
    if (outer == object.end()) continue;
    if (const Json* inner = find(*outer, path.substr(dot + 1)); inner != nullptr) return inner;
  }
  return nullptr;
}

std::optional<Json> ground_truth(const Prompt& prompt, const Auto<std::string>& field) {
  const Json extra = Json::parse(prompt.extra_json);
  const auto named = [&](const std::string& path) -> std::optional<Json> {
    const Json* found = find(extra, path);
    if (found == nullptr || found->is_null()) return std::nullopt;
    return *found;
  };
  if (field) {
    if (auto found = named(*field)) return found;
    if (*field == "ground_truth" && !prompt.ground_truth.empty()) return prompt.ground_truth;
    return std::nullopt;
  }
  if (auto found = named("reward_model.ground_truth")) return found;
  if (!prompt.ground_truth.empty()) return prompt.ground_truth;
  return named("answer");
}

std::string place_of(const PromptSet& set, std::size_t prompt, const std::string& name) {
  return fmt::format("{}:{}: prompt '{}'", name, set.lines[prompt], set.prompts[prompt].uid);
}

[[noreturn]] void throw_missing(const PromptSet& set, std::size_t prompt, const std::string& name,
                                const RewardSection& settings) {
  throw DataError(fmt::format(
      "{} has no ground truth to score responses by: expected {}", place_of(set, prompt, name),
      settings.ground_truth
          ? fmt::format("the field {} (reward.ground_truth)", *settings.ground_truth)
          : "ground_truth, reward_model.ground_truth or answer (reward.ground_truth names another "
            "field)"));
}

}  // namespace

std::optional<std::string> ground_truth_json(const Prompt& prompt, const Auto<std::string>& field) {
  const std::optional<Json> found = ground_truth(prompt, field);
  if (!found) return std::nullopt;
  return found->dump();
}

std::optional<std::string> ground_truth_text(const Prompt& prompt, const Auto<std::string>& field) {
  const std::optional<Json> found = ground_truth(prompt, field);
  if (!found) return std::nullopt;
  return found->is_string() ? found->get<std::string>() : found->dump();
}

AnswerMatches::AnswerMatches(const RewardSection& settings) : rules_(settings.rule) {
  for (const AnswerRule rule : {AnswerRule::exact, AnswerRule::numeric, AnswerRule::last_number,
                                AnswerRule::boxed, AnswerRule::regex}) {
    if (rules_.has(rule))
      matches_.emplace(std::piecewise_construct, std::forward_as_tuple(rule),
                       std::forward_as_tuple(settings, rule));
  }
}

/// The rule's number as one character, then the truth.
std::string AnswerMatches::subject(const Prompt& prompt, const std::string& truth) const {
  std::optional<AnswerRule> rule = rules_.otherwise;
  if (!rules_.by_source.empty()) {
    const Json extra = Json::parse(prompt.extra_json);
    const auto field = extra.find("data_source");
    const std::string source =
        field != extra.end() && field->is_string() ? field->get<std::string>() : "";
    if (const auto own = rules_.by_source.find(source); own != rules_.by_source.end())
      rule = own->second;
    if (!rule) {
      std::string known;
      for (const auto& [name, unused] : rules_.by_source) known += "'" + name + "', ";
      throw DataError(
          fmt::format(": its data_source '{}' has no rule: expected {}or a `default` "
                      "(reward.rule)",
                      source.substr(0, 64), known));
    }
  }
  if (const std::string why = matches_.at(*rule).unusable(truth); !why.empty()) {
    throw DataError(
        fmt::format(": its ground truth '{}' cannot be compared with by reward.rule: {}",
                    truth.substr(0, 64), why));
  }
  return std::string(1, static_cast<char>('0' + static_cast<int>(*rule))) + truth;
}

bool AnswerMatches::matches(std::string_view response, std::string_view subject) const {
  const auto rule = static_cast<AnswerRule>(subject.front() - '0');
  return matches_.at(rule).matches(response, subject.substr(1));
}

std::vector<std::string> scoring_subjects(const RewardSection& settings, const PromptSet& set,
                                          const std::string& name, const Tokenizer& tokenizer) {
  std::vector<std::string> subjects;
  subjects.reserve(set.prompts.size());
  if (settings.method == RewardMethod::command) {
    for (std::size_t i = 0; i < set.prompts.size(); ++i) {
      const auto truth = ground_truth_json(set.prompts[i], settings.ground_truth);
      if (!truth && settings.ground_truth) throw_missing(set, i, name, settings);
      subjects.push_back(prompt_members(set.prompts[i], truth, tokenizer, settings.send_tokens));
    }
    return subjects;
  }
  const AnswerMatches matches(settings);
  for (std::size_t i = 0; i < set.prompts.size(); ++i) {
    const auto truth = ground_truth_text(set.prompts[i], settings.ground_truth);
    if (!truth) throw_missing(set, i, name, settings);
    try {
      subjects.push_back(matches.subject(set.prompts[i], *truth));
    } catch (const DataError& error) {
      throw DataError(place_of(set, i, name) + error.what());
    }
  }
  return subjects;
}

}  // namespace paceline::io
