// Settings of the scorers, as a configuration has them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/auto.hpp"

namespace paceline::io {

/// Method of scoring: none, the rules of answer_match.hpp, or programs.
enum class RewardMethod : std::uint8_t { none, match, command };
/// How many of a run's responses must have a reward when it ends: any number, one or all.
enum class RewardsRequired : std::uint8_t { none, some, all };
/// The part of a response that is its answer (answer_match.hpp).
enum class AnswerRule : std::uint8_t { exact, numeric, last_number, boxed, regex };
/// Answer rules by prompt.
struct AnswerRules {
  /// Rule of other prompts; absent: none.
  std::optional<AnswerRule> otherwise = AnswerRule::last_number;
  std::map<std::string, AnswerRule> by_source;  ///< rule of prompts with this data_source

  bool operator==(const AnswerRules&) const = default;
  [[nodiscard]] bool has(AnswerRule rule) const {
    return otherwise == rule || std::any_of(by_source.begin(), by_source.end(),
                                            [rule](const auto& r) { return r.second == rule; });
  }
};

struct RewardSection {
  RewardMethod method = RewardMethod::none;
  Auto<std::string> ground_truth;  ///< field of a prompt's line with the truth (ground_truth.hpp)
  AnswerRules rule;
  std::optional<std::string> pattern;  ///< PCRE2, of rule regex
  double tolerance = 0;                ///< of numbers, relative to the truth or 1; 0: equal
  std::vector<std::string> command;    ///< program and arguments of a worker (worker_pool.hpp)
  std::int32_t workers = 2;            ///< on each rank that verifies
  double timeout = 60;                 ///< seconds for one response
  std::int32_t attempts = 2;           ///< at a response on which a worker fails
  bool send_tokens = false;            ///< workers get token ids too
  RewardsRequired required = RewardsRequired::some;
};

}  // namespace paceline::io
