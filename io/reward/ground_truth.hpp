// The part of each prompt that scoring needs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/reward/answer_match.hpp"
#include "io/text/prompts.hpp"
#include "io/text/tokenizer.hpp"
#include "io/workers/worker_settings.hpp"

namespace paceline::io {

/// The true answer in a prompt's line as compact JSON; nullopt if it is absent or null. `field`:
/// its name, with a point after each outer name. Auto: reward_model.ground_truth (verl), else
/// ground_truth, else answer (GSM8K). A ground_truth outside reward_model was kept as text, and is
/// a string here even if it was other JSON.
[[nodiscard]] std::optional<std::string> ground_truth_json(const Prompt& prompt,
                                                           const Auto<std::string>& field);
/// The same as text: a string unchanged, other JSON in its compact spelling.
[[nodiscard]] std::optional<std::string> ground_truth_text(const Prompt& prompt,
                                                           const Auto<std::string>& field);

/// Matchers for the rules that reward.rule names.
class AnswerMatches {
 public:
  /// Throws the errors of AnswerMatch.
  explicit AnswerMatches(const RewardSection& settings);
  /// The facts about a prompt that matches() needs. Throws DataError with the reason if there is no
  /// rule for its data_source, or the rule cannot compare with its truth.
  [[nodiscard]] std::string subject(const Prompt& prompt, const std::string& truth) const;
  /// AnswerMatch::matches() for the prompt with this subject.
  [[nodiscard]] bool matches(std::string_view response, std::string_view subject) const;

 private:
  AnswerRules rules_;
  std::map<AnswerRule, AnswerMatch> matches_;
};

/// [prompts] What a scorer needs of each: for reward.method match its AnswerMatches::subject(), for
/// command the members of its line (worker_line.hpp). `name`: of the prompts' file. Throws
/// DataError naming the first line whose ground truth is missing, or cannot be compared by
/// reward.rule. For command it may be missing, unless reward.ground_truth names it.
[[nodiscard]] std::vector<std::string> scoring_subjects(const RewardSection& settings,
                                                        const PromptSet& set,
                                                        const std::string& name,
                                                        const Tokenizer& tokenizer);

}  // namespace paceline::io
