// Settings of the scorers and of conversations, as a configuration has them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/optional_index.hpp"

namespace paceline::io {

/// Method of scoring: none, the rules of answer_match.hpp, or programs.
enum class RewardMethod : std::uint8_t { none, match, command };
/// Number of a run's responses that must have a reward when it ends: any number, at least one, all.
enum class RewardsRequired : std::uint8_t { none, some, all };
/// The part of a response that is its answer (answer_match.hpp).
enum class AnswerRule : std::uint8_t { exact, numeric, last_number, boxed, regex };
/// Answer rules by prompt.
struct AnswerRules {
  /// Rule of all other prompts; nullopt: none.
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
  Auto<std::string> ground_truth;  ///< field of a prompt's line (ground_truth.hpp)
  AnswerRules rule;
  std::optional<std::string> pattern;  ///< PCRE2, for rule regex
  double tolerance = 0;                ///< for numbers, relative to the truth or 1; 0: equal
  std::vector<std::string> command;    ///< program and arguments of a worker (worker_pool.hpp)
  std::int32_t workers = 2;            ///< on each verifier
  double timeout = 60;                 ///< seconds for one response
  std::int32_t attempts = 2;           ///< for a response on which workers fail
  bool send_tokens = false;            ///< workers also get token ids
  RewardsRequired required = RewardsRequired::some;
};

/// The source of answers to a response's turns: none, so that a response is one turn, or programs.
enum class EnvironmentMethod : std::uint8_t { none, command };

struct EnvironmentSection {
  EnvironmentMethod method = EnvironmentMethod::none;
  std::vector<std::string> command;  ///< program and arguments of a worker (environment_pool.hpp)
  std::int32_t workers = 2;          ///< on each verifier
  double timeout = 60;               ///< seconds for one answer
  std::int32_t attempts = 2;         ///< for a turn on which workers fail
  std::int32_t max_turns = 8;        ///< turns that the model samples in a response
  std::optional<std::int32_t> max_tokens_turn;  ///< tokens of one; none: as the response has left
};

}  // namespace paceline::io
