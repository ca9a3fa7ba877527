// Statistics of the rewards of a run's responses.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/request.hpp"

namespace paceline::app {

/// A finished response.
struct RewardedResponse {
  RequestId id;
  std::uint32_t tokens = 0;
  float reward = std::numeric_limits<float>::quiet_NaN();  ///< NaN: it has no reward
};

/// Reward statistics of a run's finished responses. The run itself may be unfinished.
struct RewardFigures {
  bool complete = false;
  std::uint64_t expected = 0;   ///< number of responses in the whole run
  std::uint64_t responses = 0;  ///< finished responses
  std::uint64_t weight_version = 0;

  /// Counts of prompts in dynamic sampling. Prompts neither kept nor dropped were not decided.
  struct Choice {
    std::uint64_t prompts = 0;  ///< all prompts of the run
    std::uint64_t kept = 0;
    std::uint64_t dropped = 0;  ///< prompts dropped for equal or missing rewards
  };
  std::optional<Choice> choice;  ///< nullopt: no dynamic sampling, or the run is not complete

  std::uint64_t scored = 0;
  double mean = 0;  ///< mean reward; this field and the next three are over scored responses only
  double deviation = 0;
  double least = 0;
  double most = 0;

  /// pass@k: the chance that at least one of k responses to a prompt passes. If c of a prompt's n
  /// scored responses pass, the unbiased estimate is 1 - C(n - c, k) / C(n, k).
  struct PassAt {
    std::uint32_t k = 0;
    double rate = 0;            ///< mean estimate over the prompts that `prompts` counts
    std::uint64_t prompts = 0;  ///< number of prompts with k or more scored responses
  };
  std::vector<PassAt> pass;  ///< k: 1, 2, 4, ..., largest number of scored responses to a prompt
  double threshold = 0;      ///< least reward that passes

  std::uint64_t groups = 0;  ///< prompts with two or more scored responses
  std::uint64_t equal = 0;   ///< groups whose rewards are all equal; GRPO learns nothing from them
  std::uint64_t all_pass = 0;  ///< groups whose responses all pass
  std::uint64_t none_pass = 0;

  /// A range of lengths with about a tenth of the scored responses.
  struct Length {
    std::uint32_t from = 0;  ///< tokens of the shortest response
    std::uint32_t to = 0;    ///< tokens of the longest response
    std::uint64_t responses = 0;
    double mean = 0;           ///< mean reward
    std::uint64_t tokens = 0;  ///< sum of the responses' tokens
  };
  std::vector<Length> by_length;
  /// Pearson's correlation of reward and length; NaN: all rewards or all lengths are equal.
  double correlation = std::numeric_limits<double>::quiet_NaN();

  [[nodiscard]] double pass_at(std::uint32_t k) const;  ///< rate for this k; NaN: `pass` lacks k
};

/// Computes the statistics. `threshold`: least reward that passes. The caller sets the fields of
/// the whole run: complete, expected, weight_version and choice.
[[nodiscard]] RewardFigures reward_figures(std::span<const RewardedResponse> responses,
                                           double threshold);

}  // namespace paceline::app
