// Whether a response's final answer is the ground truth, by simple rules.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/workers/worker_settings.hpp"

namespace paceline::io {

/// The part of a text that is the answer (reward.rule):
///   exact        all of the text
///   numeric      all of the text, which must be a number
///   last_number  the first number after the last "####" (GSM8K), or the last number if there is
///                no "####"
///   boxed        the contents of the last \boxed{...}, including inner braces
///   regex        the first group in the last match of reward.pattern; the whole match if the
///                pattern has no group or the group took no part
///
/// The ground truth is the answer, or a text with the answer after "####" (last_number) or in
/// \boxed{...} (boxed).
///
/// Rule exact compares texts without white space at both ends. By other rules two numbers are equal
/// if their values are (72 and 72.0), or if reward.tolerance is set and |a - truth| <= tolerance *
/// max(1, |truth|). Other texts are equal only by boxed and regex, without any white space.
///
/// Const members are thread-safe.
class AnswerMatch {
 public:
  /// Throws UsageError if reward.pattern does not compile.
  AnswerMatch(const RewardSection& settings, AnswerRule rule);
  ~AnswerMatch();

  /// Why no answer can equal this ground truth by the rule; empty: an answer can.
  [[nodiscard]] std::string unusable(std::string_view truth) const;
  /// Throws DataError if the pattern takes too many steps on this response. Texts are UTF-8.
  [[nodiscard]] bool matches(std::string_view response, std::string_view truth) const;

 private:
  class Pattern;
  [[nodiscard]] std::optional<std::string_view> answer_in(std::string_view text) const;
  [[nodiscard]] std::string_view truth_in(std::string_view text) const;
  [[nodiscard]] bool equal(std::string_view answer, std::string_view truth) const;

  AnswerRule rule_;
  double tolerance_;
  std::unique_ptr<const Pattern> pattern_;  ///< for regex only
};

}  // namespace paceline::io
