// What scoring needs to know of a prompt.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/reward/answer_match.hpp"
#include "io/text/prompts.hpp"
#include "io/text/tokenizer.hpp"
#include "io/workers/reward_settings.hpp"

namespace paceline::io {

/// The true answer in a prompt's line as compact JSON; nothing where there is none, or null.
/// `field`: its name, with a point before each inner one. Auto: ground_truth or
/// reward_model.ground_truth (verl), or else answer (GSM8K). Of a `ground_truth` beside
/// reward_model its text is kept, even where it was other JSON.
[[nodiscard]] std::optional<std::string> ground_truth_json(const Prompt& prompt,
                                                           const Auto<std::string>& field);
/// The same as text: strings as they are, other JSON by its compact spelling.
[[nodiscard]] std::optional<std::string> ground_truth_text(const Prompt& prompt,
                                                           const Auto<std::string>& field);

/// The rules that reward.rule names, each ready to be used.
class AnswerMatches {
 public:
  /// Throws as AnswerMatch does.
  explicit AnswerMatches(const RewardSection& settings);
  /// What is to be known of a prompt. Throws DataError, saying why there is no rule for its
  /// data_source, or why the truth cannot be compared with by it.
  [[nodiscard]] std::string subject(const Prompt& prompt, const std::string& truth) const;
  /// As AnswerMatch does, for a prompt by its subject.
  [[nodiscard]] bool matches(std::string_view response, std::string_view subject) const;

 private:
  AnswerRules rules_;
  std::map<AnswerRule, AnswerMatch> matches_;
};

/// [prompts] What a scorer needs of each: for reward.method match its AnswerMatches::subject(), for
/// command what its line has of the prompt (worker_line.hpp). `name` is the prompts' file. Throws
/// DataError naming the first line whose ground truth is missing or cannot be compared with by
/// reward.rule; for command it may be missing, unless reward.ground_truth names it.
[[nodiscard]] std::vector<std::string> scoring_subjects(const RewardSection& settings,
                                                        const PromptSet& set,
                                                        const std::string& name,
                                                        const Tokenizer& tokenizer);

}  // namespace paceline::io
