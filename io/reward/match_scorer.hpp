// Scores responses by their answers, immediately.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/reward/ground_truth.hpp"
#include "io/text/tokenizer.hpp"
#include "io/workers/scorer.hpp"
#include "runtime/core/clock.hpp"

namespace paceline::io {

/// Scores 1 if the answer is the ground truth, else 0. This takes microseconds, so it is done in
/// the caller's thread.
class MatchScorer final : public Scorer {
 public:
  /// `subjects`: [prompts] (ground_truth.hpp). All arguments except the settings outlive this.
  MatchScorer(const RewardSection& settings, std::span<const std::string> subjects,
              const Tokenizer& tokenizer, const Clock& clock)
      : matches_(settings), subjects_(subjects), tokenizer_(tokenizer), clock_(clock) {}

  void submit(const Trajectory& response) override;
  [[nodiscard]] std::vector<Score> take() override { return std::exchange(done_, {}); }
  [[nodiscard]] std::size_t pending() const override { return 0; }

 private:
  AnswerMatches matches_;
  std::span<const std::string> subjects_;
  const Tokenizer& tokenizer_;
  const Clock& clock_;
  std::vector<Score> done_;
};

}  // namespace paceline::io
