// `paceline rollout` plans the job, opens the output directory, generates responses with each rank
// in its role, and writes the final files. A resident job (watch.hpp) does this for each request.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "app/assembly/accounting.hpp"
#include "app/assembly/chaos.hpp"
#include "app/assembly/communicator.hpp"
#include "app/assembly/coordination.hpp"
#include "app/assembly/draft_history.hpp"
#include "app/assembly/draft_servers.hpp"
#include "app/assembly/dynamic_sampling.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/manifest.hpp"
#include "app/assembly/plan.hpp"
#include "app/assembly/plan_text.hpp"
#include "app/assembly/pregeneration.hpp"
#include "app/assembly/rank_role.hpp"
#include "app/assembly/scoring.hpp"
#include "app/assembly/wall_clock.hpp"
#include "app/commands/commands.hpp"
#include "app/commands/watch.hpp"
#include "app/terminal/progress_printer.hpp"
#include "app/terminal/pulse.hpp"
#include "app/terminal/run_log.hpp"
#include "app/terminal/signals.hpp"
#include "app/terminal/standing.hpp"
#include "app/terminal/terminal.hpp"
#include "io/run/final_file.hpp"
#include "io/run/run_directory.hpp"
#include "io/telemetry/telemetry.hpp"
#include "io/text/prompt_pictures.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/fabric/ucx_fabric.hpp"
#include "runtime/protocol/participant.hpp"
#include "runtime/roles/coordinator.hpp"
#include "runtime/roles/watchdog.hpp"

namespace paceline::app {
namespace {

/// The state of the output directory. Rank 0 opens the directory for all ranks.
struct Output {
  std::unique_ptr<io::RunDirectory> directory;  ///< set on rank 0 only
  io::RunManifest manifest;                     ///< set on rank 0 only
  io::ResumeState earlier;    ///< on rank 0: results of earlier starts and resumes, and `begun`
  io::BegunResponses begun;   ///< on rank 0: responses that another run began (prompts.begun)
  std::uint32_t attempt = 0;  ///< number of earlier starts and resumes; unused if complete
  bool complete = false;      ///< trajectories.h5 exists and is whole
  std::size_t left = 0;       ///< unfinished responses; unused if the run is complete
};

void warn(const std::vector<std::string>& warnings, const std::vector<std::string>& known = {}) {
  for (const std::string& warning : warnings) {
    if (std::find(known.begin(), known.end(), warning) == known.end()) say("warning: {}", warning);
  }
}

/// Opens the run's log. Call on rank 0. If the log cannot be opened, warns the user, except for a
/// complete run, whose directory may be read-only on purpose.
void keep_log(const Inputs& inputs, const Output& output, int ranks, RunLog& log) {
  const std::string which =
      output.complete ? std::string("a run that is already complete")
                      : fmt::format("start {} of this run", output.directory->attempt() + 1);
  const std::string why =
      log.open(inputs.config.output.directory,
               fmt::format("== {}, {}, {}", which, now_text(), counted(ranks, "rank")));
  if (!why.empty() && !output.complete) say("warning: paceline.log is not written: {}", why);
}

Output open_output(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                   const BackendChoice& backend, bool resume, Standing& standing, RunLog& log) {
  Output output;
  together(mpi, [&] {
    if (mpi.rank() != 0) return;
    const io::RewardSection& reward = inputs.config.reward;
    const bool scores = reward.method != io::RewardMethod::none;
    // Without `resume`, the scorer is tried first, so that a failure shows before anything is
    // written. With `resume`, it is tried later, if responses are left to generate or score.
    const auto try_rewards = [&] {
      if (scores && standing.new_scorer(reward.command)) try_scorer(inputs);
    };
    if (!resume) try_rewards();
    output.manifest = manifest_of(inputs, backend);
    output.begun = begun_responses(inputs, output.manifest);
    output.directory = std::make_unique<io::RunDirectory>(
        inputs.config.output.directory, output.manifest, inputs.prompts.prompts, resume);
    output.complete = output.directory->complete();
    keep_log(inputs, output, mpi.size(), log);
    if (!output.directory->note().empty()) say("{}", output.directory->note());
    if (output.complete && (!scores || inputs.config.prompts.enough)) return;  // nothing to score
    output.attempt = output.directory->attempt();
    output.earlier = output.directory->read_state();
    warn(output.earlier.warnings);
    go_on_with(output.begun, output.earlier);
    if (resume && (!output.complete || !output.earlier.unscored.entries.empty())) try_rewards();
  });
  output.left = inputs.sizes.responses - output.earlier.finished.size();
  broadcast(mpi, output.attempt, output.complete, output.left);
  if (mpi.rank() != 0) log.join(inputs.config.output.directory);
  return output;
}

/// Whether the time limit is near. Only rank 0 knows the limit; other ranks get false.
bool late(const TimeLimit& limit, const io::LimitsSection& settings, const Clock& clock) {
  return limit.seconds && clock.now() >= *limit.seconds - settings.margin;
}

/// Runs the coordinator, on a thread of its own on rank 0.
void run_coordinator(const std::stop_token& abandoned, roles::Coordinator& coordinator,
                     Mailbox& mailbox, FaultDesk& faults, const Clock& clock,
                     const std::function<bool()>& is_late, std::optional<double> stall) {
  ProgressPrinter printer;
  roles::Watchdog watchdog(stall);
  PulsingLoop pulse;
  std::string stalled;  // the watchdog's report; empty: the run has not stalled
  bool announced = false;
  bool warned = false;
  const auto look = [&] {
    // Until the run first makes progress, the Pulse looks for stopped ranks. After this, the
    // watchdog does.
    pulse.turn(coordinator.changes() > 0);
    faults.watch();
    if (coordinator.progress().nonsense > 0 && !std::exchange(warned, true))
      say("warning: a drafter rank sends the coordinator invalid messages; they are dropped");
    const bool out_of_time = is_late();
    if (stop_signalled() || out_of_time) {
      if (!announced)
        printer.stopping(out_of_time ? "the wall-clock limit is near" : "asked to stop");
      announced = true;
      coordinator.stop();
    }
    switch (watchdog.look(clock.now(), coordinator)) {
      case roles::Watchdog::Verdict::goes_on:
        break;
      case roles::Watchdog::Verdict::stop:
        stalled = watchdog.report(coordinator) + " (limits.stall)";
        say("\n{}: stopping", stalled);
        coordinator.stop();
        break;
      case roles::Watchdog::Verdict::give_up:
        throw Error(ExitCode::internal, stalled + "; run again with --resume to continue");
    }
    printer.update(clock.now(), coordinator.progress());
    return !abandoned.stop_requested();
  };
  protocol::drive(coordinator, mailbox, clock, look);
  printer.end(clock.now(), coordinator.progress());
}

struct Written {
  std::uint64_t rewards = 0;  ///< responses with a reward
  double ended = 0;           ///< seconds that this start or resume took, as in `paceline report`
};

/// Writes the final files that are missing, and removes the shards. One of the files may exist
/// already, if an earlier process was killed before it had written both.
Written write_final_files(const Inputs& inputs, const Output& output, const Clock& clock) {
  const std::string& directory = inputs.config.output.directory;
  std::optional<io::TelemetryEnding> ending;  // nullopt: an earlier start wrote trajectories.h5
  Written written;
  if (!output.complete) {
    const double begin = clock.now();
    if (inputs.config.prompts.partial == io::PartialResponses::keep) {
      const std::size_t left =
          io::write_left_over(directory, output.manifest, inputs.prompts.prompts, output.begun);
      say("{}/left: {} for a later run (prompts.begun)", directory,
          counted(left, "unfinished response"));
    }
    const io::FinalFileReport report =
        io::write_final_file(directory, output.manifest, inputs.prompts.prompts,
                             std::size_t{32} << 20, choose_prompts(inputs), output.begun.spans);
    ending =
        io::TelemetryEnding{output.attempt,
                            0,
                            &clock,
                            {{begin, clock.now() - begin, WriteRecord::Kind::final_trajectories}}};
    written.rewards = report.rewards;
    warn(report.warnings, output.earlier.warnings);
    say("{}: {}, {}, {:.1f} MiB", report.path,
        counted(report.trajectories, "trajectory", "trajectories"), counted(report.tokens, "token"),
        static_cast<double>(report.bytes) / (1024.0 * 1024.0));
    if (report.choice) print_choice(*report.choice);
    const std::uint64_t missing = report.trajectories - report.rewards;
    if (inputs.config.converses() && report.rewards > 0 && missing > 0) {
      say("warning: {} {} no reward, because the environment gave none; to_verl and to_trl pass on "
          "rewards only if every response has one",
          counted(missing, "response"), missing == 1 ? "has" : "have");
    }
  }
  const std::string roles[] = {name_of(Role::verifier), name_of(Role::verifier_member),
                               name_of(Role::drafter), name_of(Role::spare)};
  std::vector<std::string> outcomes;
  for (int i = 0; i <= static_cast<int>(io::ScoreOutcome::not_tried); ++i)
    outcomes.emplace_back(name_of(static_cast<io::ScoreOutcome>(i)));
  const io::TelemetryReport telemetry = io::write_telemetry(directory, roles, outcomes, ending);
  warn(telemetry.warnings);
  written.ended = telemetry.ended > 0 ? telemetry.ended : clock.now();
  output.directory->tidy();
  return written;
}

/// The coordinator's results in this start or resume of the run.
struct Outcome {
  roles::Progress progress;
  std::vector<RankSummary> summaries;
};

void account(const Inputs& inputs, const Plan& plan, const Outcome& outcome, double seconds,
             bool resident) {
  const roles::Progress& progress = outcome.progress;
  print_accounting(inputs, plan, outcome.summaries, progress, seconds, resident);
  if (progress.moves > 0)
    say("requests moved to another group {}", counted(progress.moves, "time"));
  if (progress.races > 0)
    say("two groups raced to finish the same request {}", counted(progress.races, "time"));
  if (progress.placements > 0) say("ranks changed roles {}", counted(progress.placements, "time"));
}

/// Logs the whole plan, but shows the user only lines that the previous step's plan, if any, lacks.
void tell_plan(const Inputs& inputs, const Machine& machine, const Plan& plan, int ranks,
               const TimeLimit& limit, Standing& standing) {
  const std::string all =
      banner_text(inputs, machine, ranks) + "layout\n" + plan_text(inputs, machine, plan);
  const std::string moment = circumstances_text(inputs, machine, limit);
  const std::string news = standing.news(all);
  draw(news == all ? all + moment : news);
  keep_in_log(all + moment);
}

/// Does one rollout. `step`: the current step of a resident job; null: the job is not resident.
/// `generated`: see RunStep (watch.hpp).
void roll_out(const fabric::MpiEnvironment& mpi, const RunArguments& arguments,
              const ResidentStep* step, Standing& standing, bool& generated) {
  const SteadyClock clock;
  const double earlier = standing.clock().now();  // seconds from the job's start to this step
  const bool first = mpi.rank() == 0;
  RunLog log;
  io::RunConfig config = read_config(mpi, arguments, io::Purpose::run);
  const Machine machine = find_machine(mpi, config.engine);
  const Inputs inputs = read_inputs(mpi, std::move(config), standing);
  const Plan plan = make_plan(mpi, inputs, machine);
  TimeLimit limit;
  if (first) {
    limit = time_limit(inputs.config.limits.wall_clock);
    // limits.wall_clock counts from the job's start, and Slurm's remaining time from now.
    if (limit.seconds) *limit.seconds += inputs.config.limits.wall_clock ? -earlier : clock.now();
    tell_plan(inputs, machine, plan, mpi.size(), limit, standing);
  }
  Output output = open_output(mpi, inputs, machine.backend, arguments.resume, standing, log);
  if (output.complete) {
    together(mpi, [&] {
      if (first) (void)write_final_files(inputs, output, clock);
    });
    score_complete_run(mpi, inputs, plan, output.earlier.unscored, clock, [&] {
      return stop_signalled() || late(limit, inputs.config.limits, clock);
    });
    return;
  }

  const ServedPrompts prompts = served_prompts(mpi, inputs, plan);
  bool complete = false;
  Outcome outcome;
  RankReport report;
  {
    const Communicator control = Communicator::duplicate();
    FaultDesk faults(mpi, control.get());
    std::vector<Address::Port> ports{Address::Port::role};
    if (first) ports.push_back(Address::Port::coordinator);
    if (hosts_draft_server(plan, mpi.rank())) ports.push_back(Address::Port::draft_server);
    std::unique_ptr<fabric::UcxFabric> network;
    fabric::FabricSettings settings;
    settings.wrap = delaying(inputs.config.test, mpi.rank());
    together(mpi, [&] { network = std::make_unique<fabric::UcxFabric>(mpi, ports, settings); });
    network->connect();
    Mailbox& mailbox = network->mailbox(Address::Port::role);
    std::unique_ptr<policy::Scheduler> scheduler;
    std::unique_ptr<policy::DynamicSampling> sampling;
    io::PromptPictures pictures(inputs.prompts, inputs.config.prompts.path);
    std::unique_ptr<UpcomingStep> upcoming;
    std::unique_ptr<roles::Coordinator> coordinator;
    std::atomic<bool> coordinated{!first};
    std::jthread thread;
    if (first) {
      scheduler = make_scheduler(inputs, machine, plan);
      roles::CoordinatorOptions options = coordinator_options(inputs, plan);
      options.pictures = &pictures;
      sampling = make_sampling(inputs, output.earlier);
      options.sampling = sampling.get();
      if (step != nullptr && inputs.config.speculation.pregenerate && !inputs.config.converses()) {
        upcoming = std::make_unique<UpcomingStep>(*step, inputs, output.manifest, [&] {
          network->mailbox(Address::Port::coordinator).wake();
        });
        options.upcoming = upcoming.get();
      }
      coordinator = std::make_unique<roles::Coordinator>(
          network->mailbox(Address::Port::coordinator), *scheduler, plan.layout.placement,
          work_list(inputs, output.earlier.finished, output.earlier.partial),
          make_order(inputs, known_lengths(inputs)), inputs.prompts.prompts, options,
          output.earlier.finished.size());
      thread = std::jthread([&](const std::stop_token& abandoned) {
        try {
          run_coordinator(
              abandoned, *coordinator, network->mailbox(Address::Port::coordinator), faults, clock,
              [&] { return late(limit, inputs.config.limits, clock); }, inputs.config.limits.stall);
          coordinated = true;
          mailbox.wake();
        } catch (...) {
          abort_job(mpi, current_fault());
        }
      });
    }
    // Whether to stop waiting for rewards: the run stops, or prompts.enough needs no more rewards.
    const auto stop = [&] {
      return stop_signalled() ||
             (first && (late(limit, inputs.config.limits, clock) ||
                        (coordinated && (sampling != nullptr || !coordinator->complete()))));
    };
    {
      const DraftServerThread server(mpi, inputs, plan, prompts, *network, clock);
      report = run_role(mpi, inputs, machine, plan,
                        {output.attempt, output.left,
                         share_of_unscored(mpi, inputs, plan, output.earlier.unscored), stop},
                        standing, clock, *network, faults);
    }
    if (first) {
      // This rank's last messages to the coordinator go out only while the mailbox is polled.
      while (!coordinated) {
        mailbox.wait(1);
        while (mailbox.poll()) {
        }
      }
      thread.join();
      complete = coordinator->complete();
      outcome = {coordinator->progress(), coordinator->summaries()};
    }
    upcoming.reset();
    network->close();
  }

  const DraftHistory all_drafts = sum_drafts(mpi, plan, report.drafts);
  ScoringReport scoring = sum_scoring(mpi, report.scoring);
  // With `prompts.enough`, responses without a score belong to prompts that a complete run drops.
  if (complete && inputs.config.prompts.enough)
    scoring.tally.late -= std::exchange(scoring.tally.unscored, 0);
  together(mpi, [&] {
    if (!first) return;
    keep_drafts(inputs, plan, all_drafts, output.attempt == 0);
    print_scoring(inputs, scoring);
    if (!complete) {
      account(inputs, plan, outcome, clock.now(), standing.resident());
      throw Error(ExitCode::try_again,
                  "stopped before the end: run again with --resume to continue");
    }
    generated = true;
    const Written written = write_final_files(inputs, output, clock);
    account(inputs, plan, outcome, written.ended, standing.resident());
    if (scoring.tally.unscored > 0) {
      throw Error(ExitCode::try_again,
                  "stopped before all responses were scored: run again with --resume to continue");
    }
    if (!inputs.config.prompts.enough) require_rewards(inputs, written.rewards, scoring);
  });
}

}  // namespace

ExitCode rollout(const fabric::MpiEnvironment& mpi, const RolloutArguments& arguments) {
  Standing standing(!arguments.watch.empty());
  if (arguments.watch.empty()) {
    bool generated = false;
    roll_out(mpi, arguments.run, nullptr, standing, generated);
  } else {
    watch(mpi, arguments.run, arguments.watch,
          [&](const RunArguments& of_step, const ResidentStep& step, bool& generated) {
            roll_out(mpi, of_step, &step, standing, generated);
          });
  }
  return ExitCode::done;
}

}  // namespace paceline::app
