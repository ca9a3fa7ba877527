// Which prompts of a run count where it provides more than it needs (DAPO, section 3.2: dynamic
// sampling).
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
/// whose rewards are alike gives no advantage to learn from. Which are kept is a function of the
/// rewards alone, whatever the order they come in: a prompt counts once it and all before it have
/// their rewards.
///
/// Prompts begin in order, as many as are expected to be needed. With `judged` prompts that have
/// their rewards, of which `mixed` are mixed, and `wanted` more to be found, up to
///   ceil(wanted * (judged + 2) / (mixed + 1))
/// prompts are under way: those that would yield `wanted` at the rate so far, where before the
/// first a half are taken to be mixed. Never fewer than `wanted`, which are needed in any case.
///
/// Not thread-safe.
class DynamicSampling {
 public:
  /// `order`: prompts in the order in which they are decided. `samples`: [prompts] responses to
  /// each, by its index. `enough`: prompts to keep, at least 1.
  DynamicSampling(std::vector<std::uint32_t> order, std::span<const std::uint32_t> samples,
                  std::size_t enough);

  /// A response has this reward; NaN: it has none, and will have none. Counts once a response. A
  /// response that the run does not have is ignored.
  void scored(const Reward& reward);

  /// Whether requests of the prompt may begin. Once true it stays so.
  [[nodiscard]] bool may_begin(std::uint32_t prompt) const;
  /// Whether the prompt may still count: enough mixed prompts before it are not known yet.
  [[nodiscard]] bool may_count(std::uint32_t prompt) const;
  /// Whether as many as are wanted are kept.
  [[nodiscard]] bool enough() const { return kept_ == enough_; }
  /// Whether all is decided: enough are kept, or no prompt is left.
  [[nodiscard]] bool over() const { return enough() || decided_ == order_.size(); }

  struct Outcome {
    std::vector<std::uint32_t> kept;  ///< prompts, ascending by index
    std::size_t dropped = 0;          ///< prompts before the last that was decided, and not kept
    std::size_t lacking = 0;          ///< of them, prompts of which a response has no reward
  };
  /// As far as prompts are decided.
  [[nodiscard]] Outcome outcome() const;
  [[nodiscard]] std::size_t kept() const { return kept_; }

 private:
  enum class Verdict : std::uint8_t { open, mixed, alike, lacking };
  struct Prompt {
    std::uint32_t place = 0;                 ///< in the order
    std::uint32_t samples = 0;               ///< responses to it
    std::map<std::uint32_t, float> rewards;  ///< by sample, until all are there
    Verdict verdict = Verdict::open;
  };
  void judge(Prompt& prompt);
  void decide();
  void begin();

  std::vector<std::uint32_t> order_;
  std::vector<Prompt> prompts_;  ///< by index
  std::size_t enough_;
  std::size_t judged_ = 0;   ///< prompts with a verdict
  std::size_t mixed_ = 0;    ///< of them
  std::size_t decided_ = 0;  ///< places before this one are decided
  std::size_t kept_ = 0;     ///< of them
  std::size_t begun_ = 0;    ///< places before this one may begin
  std::size_t open_ = 0;     ///< of them, without a verdict
  std::size_t end_;          ///< places from this one on cannot count
};

}  // namespace paceline::policy
