// Whether a response's final answer is the ground truth, by rules that a user can read.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/workers/reward_settings.hpp"

namespace paceline::io {

/// What counts as the answer in a text (reward.rule):
///   exact        all of the text
///   numeric      all of the text, which must be a number
///   last_number  the first number after the last "####" (GSM8K), or the last number where there is
///                no "####"
///   boxed        what is in the last \boxed{...}, braces within it included
///   regex        what the first group of reward.pattern took in its last match; the whole match
///                where the pattern has no group
///
/// The ground truth is the answer, or a text with "####" or \boxed{...} where the rule looks for
/// such.
///
/// Two numbers are equal when they are so exactly (72 and 72.0), or, where reward.tolerance is set,
/// when |a - truth| <= tolerance * max(1, |truth|). Where one is no number, the texts must be the
/// same: but for white space at both ends (exact), or for all white space (boxed, regex).
///
/// Const members are thread-safe.
class AnswerMatch {
 public:
  /// Throws UsageError when reward.pattern does not compile.
  AnswerMatch(const RewardSection& settings, AnswerRule rule);
  ~AnswerMatch();

  /// Why no answer can equal this ground truth by the rule; empty: one can.
  [[nodiscard]] std::string unusable(std::string_view truth) const;
  /// Throws DataError when the pattern takes too many steps on this response. Both are UTF-8.
  [[nodiscard]] bool matches(std::string_view response, std::string_view truth) const;

 private:
  class Pattern;
  [[nodiscard]] std::optional<std::string_view> answer_in(std::string_view text) const;
  [[nodiscard]] std::string_view truth_in(std::string_view text) const;
  [[nodiscard]] bool equal(std::string_view answer, std::string_view truth) const;

  AnswerRule rule_;
  double tolerance_;
  std::unique_ptr<const Pattern> pattern_;  ///< of regex alone
};

}  // namespace paceline::io
