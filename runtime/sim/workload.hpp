// The work of a modelled rollout: lengths of prompts and responses, and acceptance of each
// response's drafts. A seed decides all of it, and a prompt's part does not depend on the number of
// others.
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
  /// As counted. Throws std::invalid_argument unless the bins are as LengthHistogram says, and not
  /// empty. Their largest length is the limit.
  static LengthDistribution of(std::span<const LengthBin> bins);
  /// Lognormal; 1 <= median <= p99. No limit.
  static LengthDistribution lognormal(double median, double p99);
  /// One length, at least 1. No limit.
  static LengthDistribution fixed(std::int32_t tokens);
  /// Lognormal by the median and 99 % quantile of the responses of DeepSeek-R1 in production,
  /// pooled over its users (ServeGen). For runs without its histogram, whose tail is the heavier
  /// one.
  static LengthDistribution deepseek_r1() { return lognormal(595, 16483); }

  /// The length that a share (in (0, 1)) of all does not exceed.
  [[nodiscard]] double quantile(double share) const;
  /// The longest possible length, where lengths were counted; 0: no limit.
  [[nodiscard]] std::int32_t limit() const { return limit_; }

 private:
  std::vector<LengthBin> cumulative_;  ///< weight: of this length and all below; empty: lognormal
  double log_median_ = 0;
  double log_spread_ = 0;  ///< standard deviation
  std::int32_t limit_ = 0;
};

struct WorkloadSettings {
  std::uint64_t seed = 1;
  std::int32_t prompts = 512;
  std::int32_t samples = 16;  ///< responses to each: SpecActor, section 5.1: 8,192 in all
  /// Longest response. Lengths of a distribution with a limit are scaled by max_tokens / limit, so
  /// that ranks and ratios stay as counted; others are cut off at max_tokens. 20 K: SpecActor,
  /// section 5.1.
  std::int32_t max_tokens = 20480;
  std::int32_t max_prompt_tokens = 2048;  ///< longer prompts are cut; assumed
  std::vector<std::int32_t>
      prompt_tokens;         ///< of the prompts, over and over; empty: they are drawn
  std::int32_t context = 0;  ///< positions that no response exceeds; 0: no limit
  /// Spearman's rank correlation of the lengths of two responses to a prompt, 0 to 1. Seer, section
  /// 3.2 and figure 4: "strong", without a number; assumed, and to be swept.
  double length_correlation = 0.7;
  std::int32_t vocabulary =
      32768;  ///< token ids are below it; at least 3. No result depends on it.
  AcceptanceSettings acceptance;
  TurnSettings turns;
};

struct ModelledRequest {
  std::int32_t length = 1;        ///< response tokens; the last is kModelledStop, cut or not
  std::vector<float> acceptance;  ///< [methods] mean rate over the response
  /// Of a conversation, whose turns end with kModelledStop; else empty.
  std::vector<ModelledTurn> turns = {};

  /// Response tokens that are sampled, not given.
  [[nodiscard]] std::int32_t sampled() const;
  /// Seconds that it waits for answers.
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
