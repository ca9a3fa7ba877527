// Dynamic sampling (DAPO, section 3.2): the prompts that count in a run with more prompts than it
// needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/request.hpp"

namespace paceline::policy {

/// Keeps the first prompts, in their order, whose responses' rewards are not all alike: a prompt
/// whose rewards are alike gives no advantage to learn from. The selection depends only on the
/// rewards, not on the order in which they arrive: a prompt is decided once it and all prompts
/// before it have their rewards.
///
/// Prompts begin in order, as many as are expected to be needed. Let `judged` prompts have their
/// rewards, `mixed` of them with rewards that differ, and let `wanted` more be needed. Then up to
///   ceil(wanted * (judged + 2) / (mixed + 1))
/// prompts are in progress: as many as would yield `wanted` mixed ones at the rate seen so far,
/// which begins at one half. There are never fewer than `wanted`, which are needed in any case.
///
/// Not thread-safe.
class DynamicSampling {
 public:
  /// `order`: indices of prompts in the order in which they are decided. `samples`: [prompts]
  /// number of responses to each prompt, by its index. `enough`: number of prompts to keep, at
  /// least 1.
  DynamicSampling(std::vector<std::uint32_t> order, std::span<const std::uint32_t> samples,
                  std::size_t enough);

  /// Reports the reward of a response; NaN: it has no reward and never will have one. Further
  /// reports of the same response are ignored, and so are responses that the run does not have.
  void scored(const Reward& reward);

  /// Whether requests of the prompt may begin. Once true, it stays true.
  [[nodiscard]] bool may_begin(std::uint32_t prompt) const;
  /// Whether the prompt may still count: fewer than `enough` prompts before it are known to be
  /// mixed.
  [[nodiscard]] bool may_count(std::uint32_t prompt) const;
  /// Whether `enough` prompts are kept.
  [[nodiscard]] bool enough() const { return kept_ == enough_; }
  /// Whether all is decided: enough prompts are kept, or no prompt is left.
  [[nodiscard]] bool over() const { return enough() || decided_ == order_.size(); }

  struct Outcome {
    std::vector<std::uint32_t> kept;  ///< indices of prompts, ascending
    std::size_t dropped = 0;          ///< decided prompts that are not kept
    std::size_t lacking = 0;          ///< dropped prompts of which a response has no reward
  };
  /// The outcome for the prompts decided so far.
  [[nodiscard]] Outcome outcome() const;
  [[nodiscard]] std::size_t kept() const { return kept_; }

 private:
  enum class Verdict : std::uint8_t { open, mixed, alike, lacking };
  struct Prompt {
    std::uint32_t place = 0;                 ///< index in the order
    std::uint32_t samples = 0;               ///< responses to it
    std::map<std::uint32_t, float> rewards;  ///< by sample; emptied when all are there
    Verdict verdict = Verdict::open;
  };
  void judge(Prompt& prompt);
  void decide();
  void begin();

  std::vector<std::uint32_t> order_;
  std::vector<Prompt> prompts_;  ///< by index
  std::size_t enough_;
  std::size_t judged_ = 0;   ///< prompts with a verdict
  std::size_t mixed_ = 0;    ///< judged prompts whose rewards differ
  std::size_t decided_ = 0;  ///< places before this one are decided
  std::size_t kept_ = 0;     ///< decided prompts that are kept
  std::size_t begun_ = 0;    ///< places before this one may begin
  std::size_t open_ = 0;     ///< begun prompts without a verdict
  std::size_t end_;          ///< places from this one on cannot count
};

}  // namespace paceline::policy
