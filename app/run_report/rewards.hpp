// Figures of the rewards of a run's responses.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/request.hpp"

namespace paceline::app {

/// A response that came to its end.
struct RewardedResponse {
  RequestId id;
  std::uint32_t tokens = 0;
  float reward = std::numeric_limits<float>::quiet_NaN();  ///< NaN: it has none
};

/// The run as far as it is on disk.
struct RewardFigures {
  bool complete = false;
  std::uint64_t expected = 0;   ///< responses of the whole run
  std::uint64_t responses = 0;  ///< finished
  std::uint64_t weight_version = 0;

  /// Dynamic sampling: prompts of the run, and what became of them.
  struct Choice {
    std::uint64_t prompts = 0;
    std::uint64_t kept = 0;
    std::uint64_t dropped = 0;  ///< the others are left over
  };
  std::optional<Choice> choice;  ///< absent: all prompts count, or it is not known yet which do

  std::uint64_t scored = 0;
  double mean = 0;  ///< of scored responses, like the next three
  double deviation = 0;
  double least = 0;
  double most = 0;

  /// The chance that of `k` responses to a prompt one passes at least, by the unbiased estimate
  /// 1 - C(n - c, k) / C(n, k) of c that pass among n; the mean of all prompts with k or more.
  struct PassAt {
    std::uint32_t k = 0;
    double rate = 0;
    std::uint64_t prompts = 0;  ///< with k responses or more
  };
  std::vector<PassAt> pass;  ///< k rises by powers of two, up to the most responses to a prompt
  double threshold = 0;      ///< the least reward that passes

  std::uint64_t groups = 0;    ///< prompts with two scored responses at least
  std::uint64_t equal = 0;     ///< of them, whose rewards are all equal: they teach GRPO nothing
  std::uint64_t all_pass = 0;  ///< likewise, whose responses all pass
  std::uint64_t none_pass = 0;

  /// Neighbours in length: tenths of the scored responses, where lengths tell them apart.
  struct Length {
    std::uint32_t from = 0;  ///< tokens
    std::uint32_t to = 0;    ///< likewise, of the longest
    std::uint64_t responses = 0;
    double mean = 0;           ///< reward
    std::uint64_t tokens = 0;  ///< of all of them
  };
  std::vector<Length> by_length;
  /// Pearson's, of reward and length; NaN where one of them is the same for all.
  double correlation = std::numeric_limits<double>::quiet_NaN();

  [[nodiscard]] double pass_at(std::uint32_t k) const;  ///< NaN: it is none of `pass`
};

/// `threshold`: the least reward that passes. Fields of the whole run, as `expected`, are the
/// caller's to fill in.
[[nodiscard]] RewardFigures reward_figures(std::span<const RewardedResponse> responses,
                                           double threshold);

}  // namespace paceline::app
