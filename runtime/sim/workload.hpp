// The work of a modelled rollout: lengths of prompts and responses, and acceptance of each
// response's drafts. It is a function of a seed. The draws of one prompt do not depend on the
// number of prompts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/length_histogram.hpp"
#include "runtime/core/request.hpp"
#include "runtime/sim/acceptance.hpp"
#include "runtime/sim/turns.hpp"

namespace paceline::sim {

/// Lengths in tokens, as a distribution. Immutable, so thread-safe.
class LengthDistribution {
 public:
  /// The distribution of counted lengths. Their largest length is the limit. Throws
  /// std::invalid_argument unless the bins are as LengthHistogram says, and not empty.
  static LengthDistribution of(std::span<const LengthBin> bins);
  /// Lognormal; 1 <= median <= p99. No limit.
  static LengthDistribution lognormal(double median, double p99);
  /// One length, at least 1. No limit.
  static LengthDistribution fixed(std::int32_t tokens);
  /// Lognormal with the median and 99 % quantile of responses of DeepSeek-R1 in production, pooled
  /// over its users (ServeGen). For runs without the histogram of these lengths, which has a
  /// heavier tail.
  static LengthDistribution deepseek_r1() { return lognormal(595, 16483); }

  /// The length that a share (in (0, 1)) of all lengths does not exceed.
  [[nodiscard]] double quantile(double share) const;
  /// The longest possible length, where lengths were counted; 0: no limit.
  [[nodiscard]] std::int32_t limit() const { return limit_; }

 private:
  std::vector<LengthBin> cumulative_;  ///< weights are cumulative; empty: lognormal
  double log_median_ = 0;
  double log_spread_ = 0;  ///< standard deviation of the logarithm
  std::int32_t limit_ = 0;
};

struct WorkloadSettings {
  std::uint64_t seed = 1;
  std::int32_t prompts = 512;
  std::int32_t samples = 16;  ///< responses to each; 8,192 in all, as in SpecActor, section 5.1
  /// Longest response. Lengths of a distribution with a limit are scaled by max_tokens / limit, so
  /// that ranks and ratios stay as counted; others are cut off at max_tokens. The default is that
  /// of SpecActor, section 5.1.
  std::int32_t max_tokens = 20480;
  std::int32_t max_prompt_tokens = 2048;  ///< longer prompts are cut; the default is assumed
  std::vector<std::int32_t>
      prompt_tokens;         ///< lengths of prompts, used cyclically; empty: they are drawn
  std::int32_t context = 0;  ///< most positions of prompt and response; 0: no limit
  /// Spearman's rank correlation of the lengths of two responses to a prompt, 0 to 1. Seer (section
  /// 3.2, figure 4) calls it "strong", without a number: the value is assumed, and studies should
  /// vary it.
  double length_correlation = 0.7;
  std::int32_t vocabulary =
      32768;  ///< token ids are below it; at least 3. No result depends on it.
  AcceptanceSettings acceptance;
  TurnSettings turns;
};

struct ModelledRequest {
  std::int32_t length = 1;        ///< response tokens; the last is always kModelledStop
  std::vector<float> acceptance;  ///< [methods] mean rate over the response
  /// Turns of a conversation, each of which ends with kModelledStop; empty without turns.
  std::vector<ModelledTurn> turns = {};

  /// Number of response tokens that are sampled, not given.
  [[nodiscard]] std::int32_t sampled() const;
  /// Seconds that the request waits for answers.
  [[nodiscard]] double waits() const;
};

struct Workload {
  std::vector<Prompt> prompts;                         ///< uids "prompt-N", N from 0
  std::vector<std::vector<ModelledRequest>> requests;  ///< [prompt][sample]
  std::int32_t vocabulary = 0;
  AcceptanceSettings acceptance;  ///< for RequestDrafts of the requests
};

/// Draws the workload. Throws UsageError, which names the setting, on a value out of range.
[[nodiscard]] Workload make_workload(const WorkloadSettings& settings,
                                     const LengthDistribution& responses,
                                     const LengthDistribution& prompts);

}  // namespace paceline::sim
