// Programs that score responses: each reads a JSON line and writes one (worker_line.hpp), outside
// of steps. Seer, section 5: rewards are computed while other responses are still generated.
#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/text/tokenizer.hpp"
#include "io/workers/scorer.hpp"
#include "io/workers/worker_crew.hpp"
#include "io/workers/worker_settings.hpp"
#include "runtime/core/clock.hpp"

namespace paceline::io {

/// Runs reward.workers processes of the program reward.command; each has one response at a time. A
/// response on which a worker fails is tried again, reward.attempts times in all. An error is a
/// valid answer, after which the worker stays. If no worker is left, all responses are given up.
class WorkerPool final : public Scorer, private CrewDesk {
 public:
  /// `subjects`: [prompts] (ground_truth.hpp). References outlive this. Throws UsageError if the
  /// program does not exist. Unscored responses are dropped at destruction.
  WorkerPool(const RewardSection& settings, std::span<const std::string> subjects,
             const Tokenizer& tokenizer, const Clock& clock);

  void submit(const Trajectory& response) override;
  [[nodiscard]] std::vector<Score> take() override;
  [[nodiscard]] std::size_t pending() const override;
  [[nodiscard]] Trouble trouble() const override;

 private:
  struct Job {
    Trajectory response;  ///< without log-probabilities
    int attempts = 0;     ///< failed attempts so far
  };
  [[nodiscard]] std::optional<std::string> next(int worker) override;
  [[nodiscard]] std::string hear(const CrewLine& line, const std::string& answer) override;
  void fail(const CrewLine& line, bool asked, ScoreOutcome outcome, const std::string& what,
            bool given_up) override;
  void none_left() override;
  void finish(const Job& job, Score score);

  const RewardSection settings_;
  std::span<const std::string> subjects_;
  const Tokenizer& tokenizer_;
  const Clock& clock_;

  mutable std::mutex mutex_;  ///< guards the members up to the thread's own
  std::deque<Job> queue_;
  std::vector<Score> done_;
  std::size_t in_flight_ = 0;
  Trouble trouble_;

  std::vector<Job> jobs_;  ///< [workers] used by the crew's thread alone
  WorkerCrew crew_;        ///< last: its thread ends first
};

}  // namespace paceline::io
