// Rewards: a rank scores finished responses while it generates others, and counts the results.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/assembly/inputs.hpp"
#include "io/run/run_directory.hpp"
#include "io/telemetry/telemetry.hpp"
#include "io/workers/scorer.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

struct Plan;

/// If responses are scored, checks that the tokenizer and the program of reward.command exist. On
/// rank 0, also sets Inputs::subjects: facts about prompts that scoring needs. Throws Error.
void prepare_scoring(Inputs& inputs);
/// Gives rank 0's Inputs::subjects to all ranks. Collective.
void share_subjects(const fabric::MpiEnvironment& mpi, Inputs& inputs);
/// For rank 0: lets a worker score a trial response to the first prompt: the prompt's ground truth
/// or, if there is none, "no answer". If no score comes, throws UsageError or, if reward.required
/// is `none`, only warns. Does nothing unless reward.method is `command`.
void try_scorer(const Inputs& inputs);
/// The line of plan_text() about how responses are scored; empty if they are not.
[[nodiscard]] std::string scoring_text(const Inputs& inputs);

/// Results of scoring in this start or resume, of one rank or, by sum_scoring(), of all ranks.
struct ScoringTally {
  std::array<std::uint64_t, 6> counts{};  ///< [ScoreOutcome] number of responses
  std::uint64_t failures = 0;             ///< number of times that a worker failed
  double reward_sum = 0;                  ///< sum of all rewards
  double seconds = 0;                     ///< sum of the seconds of each response's last try
  double overlapped_seconds = 0;          ///< the part of `seconds` before the end of generation
  std::uint64_t late = 0;                 ///< responses without a result when generation ended
  double trailing_seconds = 0;            ///< seconds of waiting for scores after generation
  std::uint64_t unscored = 0;             ///< responses without a result when scoring was stopped

  [[nodiscard]] std::uint64_t scored() const;
  [[nodiscard]] std::uint64_t missing() const;
};
struct ScoringReport {
  ScoringTally tally;
  std::string error;    ///< first response without a reward, and why; empty: none
  std::string trouble;  ///< first failure of a worker; empty: none
};

/// Scores the responses of one rank. Used by one thread.
class Scoring {
 public:
  /// Receives a reward and the scorer's further values (io::Score::extra).
  using Keep = std::function<void(const Reward&, const std::string& extra)>;
  /// Starts the workers if reward.method is `command`. References must outlive this object.
  /// `telemetry` may be null.
  Scoring(const Inputs& inputs, const Clock& clock, io::TelemetryWriter* telemetry);

  void submit(const Trajectory& response);
  /// Calls `keep` with each new reward, and returns the number of new rewards. `all`: null, or a
  /// list to which each new result is added: the reward or, if scoring failed, NaN.
  std::size_t settle(const Keep& keep, std::vector<Reward>* all = nullptr);
  /// Call when no rank generates any more.
  void generation_over();
  [[nodiscard]] std::size_t pending() const { return scorer_->pending(); }
  [[nodiscard]] ScoringReport report() const;

 private:
  void count(const io::Score& score);

  const Clock& clock_;
  io::TelemetryWriter* telemetry_;
  std::unique_ptr<io::Scorer> scorer_;
  std::uint64_t submitted_ = 0;
  ScoringReport report_;
  double over_ = -1;  ///< when generation ended; -1: not yet
  bool warned_ = false;
};

/// Passes responses on to `sink`, and submits finished ones for scoring.
class ScoringSink final : public TrajectorySink {
 public:
  ScoringSink(TrajectorySink& sink, Scoring& scoring) : sink_(sink), scoring_(scoring) {}
  void append(const Trajectory& trajectory) override {
    sink_.append(trajectory);
    if (trajectory.finish_reason != FinishReason::partial) scoring_.submit(trajectory);
  }
  void flush() override { sink_.flush(); }

 private:
  TrajectorySink& sink_;
  Scoring& scoring_;
};

/// Passes responses on to `sink`. flush() puts them on disk, and then calls `tell` with the rewards
/// that environments gave to the finished responses; NaN: an environment gave none.
class TellingSink final : public TrajectorySink {
 public:
  using Tell = std::function<void(std::vector<Reward>)>;
  TellingSink(TrajectorySink& sink, Tell tell) : sink_(sink), tell_(std::move(tell)) {}
  void append(const Trajectory& trajectory) override {
    sink_.append(trajectory);
    if (trajectory.finish_reason != FinishReason::partial)
      rewards_.push_back({trajectory.id, trajectory.reward});
  }
  void flush() override {
    sink_.flush();
    if (!rewards_.empty()) tell_(std::exchange(rewards_, {}));
  }

 private:
  TrajectorySink& sink_;
  Tell tell_;
  std::vector<Reward> rewards_;  ///< rewards of responses that are not on disk yet
};

/// Divides rank 0's `found`, the finished responses that have no reward, evenly among the verifiers
/// of the first layout. Returns this rank's share; empty if reward.method is `none`. Collective.
[[nodiscard]] io::Unscored share_of_unscored(const fabric::MpiEnvironment& mpi,
                                             const Inputs& inputs, const Plan& plan,
                                             const io::Unscored& found);

/// After generation, waits until all responses have a result or `stop` returns true on some rank.
/// Meanwhile calls `keep` with each new reward. `scoring`: null on a rank that scores nothing.
/// `rest`: sleeps for the given seconds. Collective.
void finish_scoring(const fabric::MpiEnvironment& mpi, Scoring* scoring, const Scoring::Keep& keep,
                    const std::function<bool()>& stop, const std::function<void(double)>& rest);

/// Combines the reports of all ranks, and returns the result on every rank. Collective.
[[nodiscard]] ScoringReport sum_scoring(const fabric::MpiEnvironment& mpi,
                                        const ScoringReport& own);
void print_scoring(const Inputs& inputs, const ScoringReport& report);

/// Throws DataError if a finished run has fewer rewards than reward.required asks for. `rewards`:
/// number of the run's rewards. Rewards of environments are required only if it is `all`.
void require_rewards(const Inputs& inputs, std::uint64_t rewards, const ScoringReport& report);

/// Scores the responses of a complete run that have no reward, on all verifiers, and adds the
/// rewards to the run's file. Collective. Throws JobEnded: with the code try_again if `stop` ended
/// the scoring, or with DataError's code if too many rewards are missing (require_rewards()).
void score_complete_run(const fabric::MpiEnvironment& mpi, const Inputs& inputs, const Plan& plan,
                        const io::Unscored& unscored, const Clock& clock,
                        const std::function<bool()>& stop);

}  // namespace paceline::app
