#include "app/assembly/scoring.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "app/assembly/communicator.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/plan.hpp"
#include "app/assembly/wall_clock.hpp"
#include "app/terminal/terminal.hpp"
#include "io/reward/ground_truth.hpp"
#include "io/reward/match_scorer.hpp"
#include "io/run/final_file.hpp"
#include "io/workers/worker_pool.hpp"
#include "io/workers/worker_process.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/fields.hpp"
#include "runtime/core/wire.hpp"

namespace paceline::app {
namespace {

constexpr double kMoment = 0.02;  // seconds between checks whether all responses have a result

/// [io::ScoreOutcome] Why responses have no reward, for the user. Entry 0 (scored) is not used.
constexpr std::array kNoReward{"",
                               "refused by the scorer",
                               "answered without a valid score",
                               "not answered in time",
                               "lost when a worker ended",
                               "not tried"};

std::unique_ptr<io::Scorer> make_scorer(const Inputs& inputs, const Clock& clock) {
  const io::RewardSection& settings = inputs.config.reward;
  if (settings.method == io::RewardMethod::match)
    return std::make_unique<io::MatchScorer>(settings, inputs.subjects, *inputs.text.tokenizer,
                                             clock);
  return std::make_unique<io::WorkerPool>(settings, inputs.subjects, *inputs.text.tokenizer, clock);
}

std::string response_name(RequestId id) {
  return fmt::format("prompt {} sample {}", id.prompt, id.sample);
}

}  // namespace

void prepare_scoring(Inputs& inputs) {
  const io::RewardSection& settings = inputs.config.reward;
  if (settings.method == io::RewardMethod::none) return;
  require_tokenizer(inputs, "reward.method");
  if (settings.method == io::RewardMethod::command)
    (void)io::find_program(settings.command.front(), "reward");
  if (inputs.prompts.prompts.empty()) return;  // only rank 0 has prompts
  inputs.subjects = scoring_subjects(settings, inputs.prompts, inputs.config.prompts.path,
                                     *inputs.text.tokenizer);
}

void share_subjects(const fabric::MpiEnvironment& mpi, Inputs& inputs) {
  if (inputs.config.reward.method == io::RewardMethod::none) return;
  broadcast(mpi, inputs.subjects);
}

void try_scorer(const Inputs& inputs) {
  io::RewardSection settings = inputs.config.reward;
  if (settings.method != io::RewardMethod::command) return;
  settings.workers = 1;
  settings.attempts = 1;
  const Prompt& prompt = inputs.prompts.prompts.front();
  Trajectory response;
  response.finish_reason = FinishReason::stop_id;
  const std::optional<std::string> truth = io::ground_truth_text(prompt, settings.ground_truth);
  response.tokens = inputs.text.tokenizer->encode(truth.value_or("no answer"));
  const SteadyClock clock;
  io::WorkerPool pool(settings, inputs.subjects, *inputs.text.tokenizer, clock);
  pool.submit(response);
  while (pool.pending() > 0) std::this_thread::sleep_for(std::chrono::duration<double>(kMoment));
  const io::Score score = pool.take().at(0);
  if (score.outcome == io::ScoreOutcome::scored) return;
  const std::string what =
      fmt::format("reward.command: the trial with {} as a response to the first prompt failed: {}",
                  truth ? "the ground truth" : "'no answer'", score.error);
  if (settings.required != io::RewardsRequired::none)
    throw UsageError(what + "; set reward.required: none to run without rewards");
  say("warning: {}", what);
}

std::string scoring_text(const Inputs& inputs) {
  const io::RewardSection& settings = inputs.config.reward;
  switch (settings.method) {
    case io::RewardMethod::none:
      break;
    case io::RewardMethod::match:
      return "  each response scores 1 if its answer is the ground truth, else 0 (reward.rule)\n";
    case io::RewardMethod::command:
      return fmt::format(
          "  responses are scored by {} beside each verifier, each running '{}' (reward.workers)\n",
          counted(settings.workers, "worker"), fmt::join(settings.command, " "));
  }
  return "";
}

std::uint64_t ScoringTally::scored() const {
  return counts[static_cast<std::size_t>(io::ScoreOutcome::scored)];
}

std::uint64_t ScoringTally::missing() const {
  std::uint64_t all = unscored;
  for (const std::uint64_t count : counts) all += count;
  return all - scored();
}

Scoring::Scoring(const Inputs& inputs, const Clock& clock, io::TelemetryWriter* telemetry)
    : clock_(clock), telemetry_(telemetry), scorer_(make_scorer(inputs, clock)) {}

void Scoring::submit(const Trajectory& response) {
  ++submitted_;
  scorer_->submit(response);
}

std::size_t Scoring::settle(const Keep& keep, std::vector<Reward>* all) {
  std::size_t rewards = 0;
  for (const io::Score& score : scorer_->take()) {
    count(score);
    if (telemetry_ != nullptr) {
      telemetry_->score({score.start, score.duration, score.id, score.value,
                         static_cast<std::uint8_t>(score.outcome)});
    }
    const bool scored = score.outcome == io::ScoreOutcome::scored;
    if (all != nullptr) all->push_back({score.id, scored ? score.value : NAN});
    if (!scored) continue;
    keep({score.id, score.value}, score.extra);
    ++rewards;
  }
  return rewards;
}

void Scoring::count(const io::Score& score) {
  ScoringTally& tally = report_.tally;
  ++tally.counts[static_cast<std::size_t>(score.outcome)];
  tally.seconds += score.duration;
  const double until = over_ < 0 ? score.duration : over_ - score.start;
  tally.overlapped_seconds += std::clamp(until, 0.0, score.duration);
  if (score.outcome == io::ScoreOutcome::scored) {
    tally.reward_sum += score.value;
    return;
  }
  const std::string error = response_name(score.id) + ": " + score.error;
  if (report_.error.empty()) report_.error = error;
  if (!std::exchange(warned_, true)) say("warning: no reward: {}", error);
}

void Scoring::generation_over() {
  over_ = clock_.now();
  report_.tally.late = pending();
}

ScoringReport Scoring::report() const {
  ScoringReport report = report_;
  report.tally.unscored = submitted_;
  const io::Trouble trouble = scorer_->trouble();
  report.tally.failures = trouble.failures;
  report.trouble = trouble.first;
  for (const std::uint64_t count : report.tally.counts) report.tally.unscored -= count;
  report.tally.trailing_seconds = over_ < 0 ? 0 : clock_.now() - over_;
  return report;
}

io::Unscored share_of_unscored(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                               const Plan& plan, const io::Unscored& found) {
  io::Unscored mine;
  if (inputs.config.reward.method == io::RewardMethod::none) return mine;
  io::Unscored all = found;
  broadcast(mpi, all.paths, all.final, all.entries);
  mine.paths = std::move(all.paths);
  mine.final = all.final;
  const std::vector<policy::GroupRanks>& groups = plan.layout.placement.groups;
  const auto own = std::ranges::find(groups, mpi.rank(), &policy::GroupRanks::leader);
  if (own == groups.end()) return mine;
  for (auto i = static_cast<std::size_t>(own - groups.begin()); i < all.entries.size();
       i += groups.size())
    mine.entries.push_back(all.entries[i]);
  return mine;
}

void finish_scoring(const fabric::MpiEnvironment& mpi, Scoring* scoring, const Scoring::Keep& keep,
                    const std::function<bool()>& stop, const std::function<void(double)>& rest) {
  if (scoring != nullptr) scoring->generation_over();
  struct State {
    std::uint64_t pending = 0;
    std::uint64_t stop = 0;
  };
  for (std::uint64_t round = 0;; ++round) {
    State own;
    if (scoring != nullptr) {
      // pending() comes first: if it is 0, settle() takes every remaining score.
      own.pending = scoring->pending();
      (void)scoring->settle(keep);
    }
    own.stop = stop() ? 1 : 0;
    State all;
    for (const State& of_rank : mpi.all_values(own)) {
      all.pending += of_rank.pending;
      all.stop += of_rank.stop;
    }
    if (all.pending == 0 || all.stop > 0) return;
    constexpr auto kRoundsBetweenLines = static_cast<std::uint64_t>(10 / kMoment);
    if (mpi.rank() == 0 && round % kRoundsBetweenLines == 0)
      say("all responses are generated; {} not scored yet", all.pending);
    rest(kMoment);
  }
}

ScoringReport sum_scoring(const fabric::MpiEnvironment& mpi, const ScoringReport& own) {
  WireWriter writer;
  with_fields(own, [&](const auto&... field) { writer.put_all(field...); });
  ScoringReport sum;
  for (const std::vector<std::byte>& bytes : mpi.all_gather(writer.take())) {
    ScoringReport of_rank;
    WireReader reader(bytes);
    with_fields(of_rank, [&](auto&... field) { reader.get_all(field...); });
    const ScoringTally& tally = of_rank.tally;
    for (std::size_t i = 0; i < tally.counts.size(); ++i) sum.tally.counts[i] += tally.counts[i];
    sum.tally.failures += tally.failures;
    sum.tally.reward_sum += tally.reward_sum;
    sum.tally.seconds += tally.seconds;
    sum.tally.overlapped_seconds += tally.overlapped_seconds;
    sum.tally.late += tally.late;
    sum.tally.trailing_seconds = std::max(sum.tally.trailing_seconds, tally.trailing_seconds);
    sum.tally.unscored += tally.unscored;
    if (sum.error.empty()) sum.error = of_rank.error;
    if (sum.trouble.empty()) sum.trouble = of_rank.trouble;
  }
  return sum;
}

void print_scoring(const Inputs& inputs, const ScoringReport& report) {
  if (inputs.config.reward.method == io::RewardMethod::none) return;
  const ScoringTally& tally = report.tally;
  const std::uint64_t scored = tally.scored();
  std::string text =
      fmt::format("rewards: {} {} scored", scored, scored == 1 ? "response" : "responses");
  if (scored > 0)
    text += fmt::format(", mean {:.4g}", tally.reward_sum / static_cast<double>(scored));
  text += fmt::format("; scoring took {:.3g} s (sum of all responses' last tries)", tally.seconds);
  if (inputs.config.reward.method == io::RewardMethod::command) {
    if (tally.seconds > 0)
      text += fmt::format(", {:.0f} % of it while responses were generated",
                          100 * tally.overlapped_seconds / tally.seconds);
    if (tally.late > 0)
      text += fmt::format("; {} came after generation, within {:.3g} s",
                          counted(tally.late - tally.unscored, "result"), tally.trailing_seconds);
  }
  say("{}", text);
  if (tally.failures > 0)
    say("reward workers failed {}; the first failure: a worker {}", counted(tally.failures, "time"),
        report.trouble);
  if (tally.missing() == 0) return;
  std::string reasons;
  for (std::size_t i = 1; i < tally.counts.size(); ++i) {
    if (tally.counts[i] == 0) continue;
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", tally.counts[i], kNoReward[i]);
  }
  if (tally.unscored > 0)
    reasons +=
        fmt::format("{}{} not scored before the stop", reasons.empty() ? "" : ", ", tally.unscored);
  say("warning: {} {} no reward ({}){}; use --resume to score these responses", tally.missing(),
      tally.missing() == 1 ? "response has" : "responses have", reasons,
      report.error.empty() ? "" : ", for example " + report.error);
}

void require_rewards(const Inputs& inputs, std::uint64_t rewards, const ScoringReport& report) {
  const io::RewardSection& settings = inputs.config.reward;
  if (settings.method == io::RewardMethod::none) {
    // The message does not advise --resume: environments give no rewards later.
    if (!inputs.config.converses() || settings.required != io::RewardsRequired::all ||
        rewards == inputs.sizes.responses)
      return;
    throw DataError(fmt::format(
        "{} of {} responses got no reward from their environment (reward.required: all); {} has "
        "the trajectories",
        inputs.sizes.responses - rewards, inputs.sizes.responses, inputs.config.output.directory));
  }
  const bool enough = settings.required == io::RewardsRequired::none ||
                      (settings.required == io::RewardsRequired::some && rewards > 0) ||
                      rewards == inputs.sizes.responses;
  if (enough) return;
  throw DataError(fmt::format(
      "{} of {} responses {} no reward (reward.required){}; {} has the trajectories; use --resume "
      "to score the responses that have no reward",
      inputs.sizes.responses - rewards, inputs.sizes.responses,
      inputs.sizes.responses - rewards == 1 ? "has" : "have",
      report.error.empty() ? "" : ", for example " + report.error, inputs.config.output.directory));
}

void score_complete_run(const fabric::MpiEnvironment& mpi, const Inputs& inputs, const Plan& plan,
                        const io::Unscored& unscored, const Clock& clock,
                        const std::function<bool()>& stop) {
  const io::Unscored mine = share_of_unscored(mpi, inputs, plan, unscored);
  std::uint64_t left = unscored.entries.size();
  broadcast(mpi, left);
  if (left == 0 || inputs.config.reward.method == io::RewardMethod::none) return;
  std::unique_ptr<Scoring> scoring;
  WireWriter own;
  const auto keep = [&](const Reward& reward, const std::string& extra) {
    own.put_all(reward, extra);
  };
  together(mpi, [&] {
    if (mpi.rank() == 0)
      say("{}", left == 1 ? "1 response has no reward and is scored now"
                          : fmt::format("{} responses have no reward and are scored now", left));
    if (mine.entries.empty()) return;
    scoring = std::make_unique<Scoring>(inputs, clock, nullptr);
    read_unscored(mine, [&](const Trajectory& response) { scoring->submit(response); });
  });
  finish_scoring(mpi, scoring.get(), keep, stop, [](double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  });
  const ScoringReport report =
      sum_scoring(mpi, scoring != nullptr ? scoring->report() : ScoringReport());
  scoring.reset();
  std::vector<Reward> all;
  io::RewardExtras extras;
  for (const std::vector<std::byte>& bytes : mpi.all_gather(own.take())) {
    WireReader of_rank(bytes);
    while (!of_rank.empty()) {
      std::string extra;
      of_rank.get_all(all.emplace_back(), extra);
      if (!extra.empty()) extras.emplace(all.back().id, std::move(extra));
    }
  }
  together(mpi, [&] {
    if (mpi.rank() != 0) return;
    std::uint64_t rewards = inputs.sizes.responses - left;
    if (!all.empty()) {
      const io::FinalFileReport file = io::add_rewards(inputs.config.output.directory, all, extras);
      rewards = file.rewards;
      say("{}: {} of {} trajectories have a reward", file.path, file.rewards, file.trajectories);
    }
    print_scoring(inputs, report);
    if (report.tally.unscored > 0) {
      throw Error(ExitCode::try_again,
                  "stopped before all responses were scored: run again with --resume to continue");
    }
    require_rewards(inputs, rewards, report);
  });
}

}  // namespace paceline::app
