#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "app/assembly/job.hpp"
#include "app/commands/commands.hpp"
#include "app/commands/version.hpp"
#include "app/terminal/pulse.hpp"
#include "app/terminal/signals.hpp"
#include "app/terminal/terminal.hpp"
#include "io/config/quantity.hpp"
#include "io/config/run_config.hpp"
#include "runtime/core/parse_number.hpp"

namespace {

using namespace paceline;

std::string footer() {
  std::string text = "Exit codes:\n";
  for (const auto& [code, meaning] : kExitCodes)
    text += fmt::format("  {:>2}  {}\n", static_cast<int>(code), meaning);
  return text +
         "Signals: at a first SIGUSR1 or SIGTERM, rollout and score stop after the current step, "
         "with exit\ncode 75; check and profile go on. A second signal, two seconds or more later, "
         "ends these four\ncommands at once, also with 75. Other commands end at the first signal.";
}

/// Refuses an empty name, which a shell script passes if one of its variables is not set.
std::string not_empty(const std::string& text) {
  return text.empty() ? "expected a name, found nothing" : "";
}

void add_config(CLI::App& command, app::RunArguments& arguments) {
  command.add_option("config", arguments.config, "Configuration file (YAML)")->required();
  command
      .add_option("--set", arguments.overrides, "Override a configuration key: section.key=value")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
}

void add_run_arguments(CLI::App& command, app::RunArguments& arguments) {
  add_config(command, arguments);
  command.add_option("--output", arguments.output, "Output directory (overrides output.directory)")
      ->check(not_empty);
}

/// Adds the options that describe a machine to plan for.
void add_machine(CLI::App& command, app::PlannedMachine& machine) {
  const auto count = [&](const char* name, std::optional<int>& to, int least, const char* help) {
    command
        .add_option_function<int>(
            name, [&to](int value) { to = value; }, help)
        ->check(CLI::Range(least, app::PlannedMachine::kMost).description(""));
  };
  count("--ranks", machine.ranks, 1, "Plan for this number of ranks in total");
  count("--nodes", machine.nodes, 1,
        "Plan for this number of nodes (default: one with --ranks, else from Slurm's environment)");
  count("--ranks-per-node", machine.ranks_per_node, 1,
        "Ranks per node (default: those of --ranks evenly, else from Slurm's environment)");
  count("--cores", machine.cores, 1,
        "Cores per node, shared by its ranks (default: from Slurm's environment, else as on this "
        "machine, and at least one per rank)");
  count("--gpus", machine.gpus, 0,
        "GPUs per node; 0: the CPUs compute (default: as Slurm says, or with --gpu-memory one per "
        "rank)");
  const CLI::Validator size(
      [](std::string& text) {
        const auto bytes = io::parse_size(text);
        return bytes && *bytes > 0 ? std::string()
                                   : "expected a size such as 64GiB, found '" + text + "'";
      },
      "");
  const auto memory = [&](const char* name, std::optional<std::uint64_t>& to, const char* help) {
    command
        .add_option_function<std::string>(
            name, [&to](const std::string& text) { to = io::parse_size(text); }, help)
        ->type_name("SIZE")
        ->check(size);
  };
  memory("--host-memory", machine.host_memory,
         "Memory of each node (default: from Slurm's environment, else as on this machine)");
  memory("--gpu-memory", machine.gpu_memory,
         "Memory of each GPU (default: as the GPUs of this machine have)");
  // Earlier versions had --memory, so scripts may still pass it.
  command
      .add_option_function<std::string>(
          "--memory",
          [](const std::string&) {
            throw CLI::ValidationError(
                "--memory",
                "was replaced by --host-memory (of a node) and --gpu-memory (of each GPU)");
          })
      ->group("");
}

/// Runs a command under MPI. `advice`: end of the message about a silent rank (Pulse).
ExitCode in_mpi(const std::function<ExitCode(const fabric::MpiEnvironment&)>& command,
                const std::string& advice = "") {
  const fabric::MpiEnvironment mpi(nullptr, nullptr);
  app::know_rank(mpi.rank());
  const app::Pulse pulse(mpi, advice);
  try {
    return command(mpi);
  } catch (const app::JobEnded& ended) {  // thrown on all ranks
    return ended.code;
  } catch (...) {  // perhaps thrown on this rank only: other ranks would wait for it forever
    app::abort_job(mpi, app::current_fault());
  }
}

/// Whether a launcher started this process as a rank other than 0. All ranks get the same
/// arguments, but only rank 0 reports errors in them.
bool is_other_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::string_view(rank) != "0";
  }
  return false;
}

/// Returns a message of one line about wrong arguments.
std::string misuse(const CLI::App& cli, const CLI::ParseError& error) {
  const std::vector<const CLI::App*> commands =
      cli.get_subcommands([](const CLI::App* command) { return command->parsed(); });
  const CLI::App& command = commands.empty() ? cli : *commands.front();
  const std::string name = command.get_name();
  const std::string where = commands.empty() ? name : "paceline " + name;
  const std::vector<std::string> extras = cli.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || extras.empty())
    return fmt::format("{}: {}; see {} --help", where, error.what(), where);
  const auto is_option = [](const std::string& text) { return text.starts_with('-'); };
  const auto option = std::find_if(extras.begin(), extras.end(), is_option);
  const std::string& unexpected = option == extras.end() ? extras.front() : *option;
  std::vector<std::string> known;
  if (is_option(unexpected)) {
    for (const CLI::Option* each : command.get_options()) {
      for (const std::string& long_name : each->get_lnames()) known.push_back("--" + long_name);
    }
  } else if (commands.empty()) {
    for (const CLI::App* each : cli.get_subcommands([](const CLI::App*) { return true; }))
      known.push_back(each->get_name());
  }
  const std::vector<std::string_view> names(known.begin(), known.end());
  const std::string_view nearest = nearest_name(unexpected.substr(0, unexpected.find('=')), names);
  return fmt::format("{}: unexpected argument '{}'{}; see {} --help", where, unexpected,
                     nearest.empty() ? "" : fmt::format(" (the nearest is {})", nearest), where);
}

constexpr const char* kOutputFault = "cannot write to standard output";

/// Flushes standard output. Throws IoError if any text printed so far could not be written.
void finish_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw IoError(kOutputFault);
}

int run(int argc, char** argv) {
  CLI::App cli{"Exact, fast rollouts for LLM reinforcement learning on HPC clusters"};
  cli.name("paceline");
  cli.footer(footer());
  cli.set_version_flag("--version", app::build_report);
  cli.require_subcommand(0, 1);
  bool config_help = false;
  cli.add_flag("--help-config", config_help,
               "Print every configuration key with its default and exit");

  app::RolloutArguments arguments;
  app::CheckArguments checked;
  CLI::App* rollout =
      cli.add_subcommand("rollout", "Generate responses to all prompts (under mpirun or srun)");
  add_run_arguments(*rollout, arguments.run);
  CLI::Option* resume = rollout->add_flag("--resume", arguments.run.resume,
                                          "Continue the run in the output directory");
  rollout
      ->add_option("--watch", arguments.watch,
                   "Keep running: for each request file DIR/NAME.yaml, do a rollout into the "
                   "folder DIR/NAME")
      ->type_name("DIR")
      ->excludes(resume)
      ->excludes(rollout->get_option("--output"));
  CLI::App* check = cli.add_subcommand(
      "check", "Validate everything, print layout, memory, plan and time, and generate nothing");
  add_run_arguments(*check, checked.run);
  check->add_flag("--resume", checked.run.resume,
                  "Also check that the run in the output directory can be continued");
  add_machine(*check, checked.machine);
  app::ProfileArguments measuring;
  CLI::App* profile = cli.add_subcommand(
      "profile", "Measure what steps and drafts cost, for engine.profile (under mpirun or srun)");
  add_config(*profile, measuring.run);
  profile->add_option("--output", measuring.output, "File to write (YAML)")->required();
  profile->add_option("--seconds", measuring.seconds, "Longest time to measure, in seconds")
      ->check([](const std::string& text) {
        const auto seconds = parse_number<double>(text);
        const bool good = seconds && *seconds > 0 && *seconds <= 86'400;

        return good ? std::string() : "expected seconds above 0, at most 86400, found " + text;
      })
      ->capture_default_str();
  app::ScoreArguments scored;
  CLI::App* score = cli.add_subcommand("score",
                                       "Compute log-probabilities of a finished run's responses "
                                       "under any weights (under mpirun or srun)");
  add_config(*score, scored.run);
  score->add_option("run", scored.directory, "Run directory")->required();
  score
      ->add_option("--name", scored.name,
                   "NAME in scores-NAME.h5, the file to write into the run directory (default: the "
                   "name of the model's directory)")
      ->check(not_empty);
  score->add_flag("--keep-routing", scored.keeps_routing,
                  "Also write which experts each token uses, for trainers that replay the routing");
  score->add_flag("--replay-routing", scored.replays_routing,
                  "Send each token to the experts that the run recorded (sampling.keep_routing); "
                  "the configured model's router computes only their gate weights");
  app::SimulateArguments simulated;
  CLI::App* simulate =
      cli.add_subcommand("simulate", "Simulate a run in a modelled cluster of any size");
  add_run_arguments(*simulate, simulated.run);
  simulate->add_option("--sweep", simulated.sweep,
                       "Simulate once for each value of a key: section.key=value,value,...; with "
                       "--output DIR, each simulation writes its telemetry into its own folder in "
                       "DIR");
  app::ReportArguments reported;
  CLI::App* report = cli.add_subcommand(
      "report",
      "Print rewards of runs, finished or not, and where the time of runs or simulations went");
  report
      ->add_option("runs", reported.runs,
                   "Run directories or their telemetry.h5, in the order of the training steps; or "
                   "the folder of a resident job (--watch)")
      ->required();
  report->add_flag("--json", reported.json, "Print all figures as one JSON document");
  report
      ->add_option("--pass", reported.pass,
                   "Least reward with which a response counts as passed in pass@k")
      ->capture_default_str();
  report->add_option("--html", reported.html, "Also write the report as one HTML file with charts")
      ->type_name("FILE");
  report
      ->add_option("--trace", reported.trace,
                   "Write every step of one run as a trace for Perfetto or Chrome (JSON)")
      ->type_name("FILE");
  app::ShowArguments shown;
  CLI::App* show = cli.add_subcommand(
      "show",
      "Print the named responses of a run, finished or still going, as text; if none is named, "
      "an overview of its prompts");
  show->add_option("run", shown.run, "Run directory or trajectories.h5")->required();
  show->add_option("which", shown.which,
                   "PROMPT:SAMPLE, such as 4:1, or PROMPT for all responses to it; both numbers "
                   "count from 0, as in the files and in reports")
      ->type_name("P:S");
  std::string path;
  CLI::App* digest =
      cli.add_subcommand("digest", "Print the digest of a run directory or trajectory file");
  digest->add_option("path", path, "Run directory or trajectories.h5")->required();

  try {
    cli.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      cli.exit(error);
      finish_output();
      return static_cast<int>(ExitCode::done);
    }
    if (!is_other_rank()) {
      app::say("{}", misuse(cli, error));
    } else {
      // A launcher ends all ranks when one fails, so this rank first lets rank 0 report the error.
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    return static_cast<int>(ExitCode::usage);
  }
  if (config_help) {
    fmt::print("{}", io::config_reference());
    finish_output();
    return static_cast<int>(ExitCode::done);
  }
  ExitCode code = ExitCode::usage;
  if (rollout->parsed()) {
    code = in_mpi([&](const auto& mpi) { return app::rollout(mpi, arguments); },
                  arguments.watch.empty() ? "run again with --resume to continue"
                                          : "run the same command again to continue");
  } else if (check->parsed()) {
    code = in_mpi([&](const auto& mpi) { return app::check(mpi, checked); });
  } else if (profile->parsed()) {
    code = in_mpi([&](const auto& mpi) { return app::profile(mpi, measuring); });
  } else if (score->parsed()) {
    code = in_mpi([&](const auto& mpi) { return app::score(mpi, scored); });
  } else if (simulate->parsed()) {
    app::end_at_signals();
    code = app::simulate(simulated);
  } else if (report->parsed()) {
    app::end_at_signals();
    code = app::report(reported);
  } else if (show->parsed()) {
    app::end_at_signals();
    code = app::show(shown);
  } else if (digest->parsed()) {
    app::end_at_signals();
    code = app::digest(path);
  } else {
    fmt::print("{}", cli.help());
  }
  // A command that failed has already printed a message, perhaps about standard output.
  if (code == ExitCode::done) finish_output();
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  app::watch_signals();  // first, because the launcher may pass a signal on at any time
  app::end_job_on_terminate();
  try {
    return run(argc, argv);
  } catch (...) {
    const app::Fault fault = app::current_fault();
    app::say("paceline: {}", fault.message);
    return static_cast<int>(fault.code);
  }
}
