#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <string>

#include "app/assembly/job.hpp"
#include "app/assembly/scoring.hpp"
#include "app/assembly/setup.hpp"
#include "app/commands/commands.hpp"
#include "app/commands/report.hpp"
#include "app/terminal/standing.hpp"
#include "io/run/run_directory.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/duration.hpp"
#include "runtime/costs/run_seconds.hpp"

namespace paceline::app {
namespace {

std::string time_text(const Setup& setup, const TimeLimit& limit) {
  if (!setup.profile) return "  time: not known without engine.profile (paceline profile)\n";
  if (!setup.profile_fault.empty())
    return "  time: not known, for engine.profile does not hold here\n";
  RunShape shape;
  shape.responses = static_cast<double>(setup.requests());
  shape.samples = setup.config.prompts.samples;
  for (const Prompt& prompt : setup.prompts.prompts)
    shape.prompt_tokens += static_cast<double>(prompt.tokens.size());
  shape.prompt_tokens /= static_cast<double>(setup.prompts.prompts.size());
  shape.groups = setup.layout.groups();
  shape.max_batch = setup.config.engine.max_batch;
  shape.kv_positions = std::int64_t{setup.kv.blocks} * setup.config.engine.kv_block;
  const auto seconds_at = [&](double tokens) {
    shape.response_tokens = tokens;
    return run_seconds(*setup.profile, shape);
  };
  const double longest = setup.mean_max_tokens;
  const double most = seconds_at(longest);
  std::string text = fmt::format(
      "  time: about {} if responses come to {:.0f} tokens, {} at {:.0f} (decoding plainly, by "
      "engine.profile)\n",
      duration_text(seconds_at(longest / 2)), longest / 2, duration_text(most), longest);
  if (limit.seconds && most > *limit.seconds)
    text += "  warning: that may be more than the time limit; the run then has to be resumed\n";
  return text;
}

/// Lines on files that the plan does without, and the subject of the last sentence.
std::string absence_text(const Setup& setup) {
  if (setup.absent.empty()) return "everything";
  std::string text;
  for (const std::string& what : setup.absent) text += fmt::format("  not there yet: {}\n", what);
  return text + fmt::format("  planned by config.json{}\nall else",
                            setup.prompts.estimated
                                ? ", and with a token for every four bytes of a prompt's text"
                                : "");
}

}  // namespace

ExitCode check(const fabric::MpiEnvironment& mpi, const CheckArguments& arguments) {
  if (mpi.size() > 1 && arguments.machine.elsewhere()) {
    together(mpi, [] {
      throw UsageError(
          "check: --ranks, --nodes, --ranks-per-node, --cores, --host-memory, --gpus and "
          "--gpu-memory are for one rank, which plans for many; under a launcher the job's own "
          "nodes are planned for");
    });
  }
  const PlannedMachine machine = with_slurm(arguments.machine);
  const bool planned = mpi.size() == 1 && machine.elsewhere();
  Standing standing;
  const Setup setup = prepare(mpi, arguments.run, standing, planned ? &machine : nullptr);
  together(mpi, [&] {
    if (mpi.rank() != 0) return;
    std::optional<io::RunManifest> resumed;  // making one takes reading all weights
    if (arguments.run.resume) resumed = manifest_of(setup);
    const std::string output =
        io::RunDirectory::examine(setup.config.output.directory, resumed ? &*resumed : nullptr);
    if (setup.tokenizer) try_scorer(setup);
    const TimeLimit limit = time_limit(setup.config.limits.wall_clock);
    fmt::print("{}layout\n{}{}{}  output {}\n{}{} is in order: {} to generate\n",
               banner_text(setup, static_cast<int>(setup.facts.size())), plan_text(setup),
               speculation_text(setup), circumstances_text(setup, limit), output,
               time_text(setup, limit), absence_text(setup), counted(setup.requests(), "response"));
    if (std::fflush(stdout) != 0) throw IoError("cannot write to standard output");
  });
  return ExitCode::done;
}

}  // namespace paceline::app
