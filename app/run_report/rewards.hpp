// Figures of the rewards of a run's responses.
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

/// Figures of the part of a run that is on disk.
struct RewardFigures {
  bool complete = false;
  std::uint64_t expected = 0;   ///< number of responses in the whole run
  std::uint64_t responses = 0;  ///< finished responses
  std::uint64_t weight_version = 0;

  /// The outcome of dynamic sampling for the run's prompts.
  struct Choice {
    std::uint64_t prompts = 0;
    std::uint64_t kept = 0;
    std::uint64_t dropped = 0;  ///< prompts neither kept nor dropped are left over
  };
  std::optional<Choice> choice;  ///< nullopt: no dynamic sampling, or the run is not complete

  std::uint64_t scored = 0;
  double mean = 0;  ///< mean reward; this and the next three count scored responses only
  double deviation = 0;
  double least = 0;
  double most = 0;

  /// The chance that at least one of `k` responses to a prompt passes. It is the unbiased estimate
  /// 1 - C(n - c, k) / C(n, k) for c passes among n scored responses, averaged over `prompts`.
  struct PassAt {
    std::uint32_t k = 0;
    double rate = 0;
    std::uint64_t prompts = 0;  ///< number of prompts with k or more scored responses
  };
  std::vector<PassAt> pass;  ///< k: 1, 2, 4 and so on, and the size of the largest group
  double threshold = 0;      ///< least reward that passes

  std::uint64_t groups = 0;    ///< prompts with two or more scored responses
  std::uint64_t equal = 0;     ///< groups whose rewards are all equal, so that GRPO learns nothing
  std::uint64_t all_pass = 0;  ///< groups whose responses all pass
  std::uint64_t none_pass = 0;

  /// A range of lengths with about a tenth of the scored responses.
  struct Length {
    std::uint32_t from = 0;  ///< tokens of the shortest
    std::uint32_t to = 0;    ///< tokens of the longest
    std::uint64_t responses = 0;
    double mean = 0;           ///< mean reward
    std::uint64_t tokens = 0;  ///< sum over the responses
  };
  std::vector<Length> by_length;
  /// Pearson's correlation of reward and length; NaN: all rewards or all lengths are equal.
  double correlation = std::numeric_limits<double>::quiet_NaN();

  [[nodiscard]] double pass_at(std::uint32_t k) const;  ///< NaN: `pass` has no such k
};

/// Computes the figures. `threshold`: least reward that passes. The caller fills in the fields of
/// the whole run: complete, expected, weight_version and choice.
[[nodiscard]] RewardFigures reward_figures(std::span<const RewardedResponse> responses,
                                           double threshold);

}  // namespace paceline::app
