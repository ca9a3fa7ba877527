#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "app/assembly/dynamic_sampling.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/manifest.hpp"
#include "app/assembly/plan.hpp"
#include "app/assembly/plan_text.hpp"
#include "app/assembly/scoring.hpp"
#include "app/commands/commands.hpp"
#include "app/terminal/standing.hpp"
#include "io/run/run_directory.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/costs/run_seconds.hpp"

namespace paceline::app {
namespace {

std::string time_text(const Inputs& inputs, const Plan& plan, const TimeLimit& limit) {
  if (!plan.costs.profile)
    return "  time: not known without engine.profile (`paceline profile` makes one)\n";
  if (!plan.costs.fault.empty())
    return "  time: not known, because engine.profile does not apply to this run\n";
  RunShape shape;
  shape.responses = static_cast<double>(inputs.sizes.responses);
  shape.samples =
      std::max<int>(1, static_cast<int>(inputs.sizes.responses / inputs.prompts.prompts.size()));
  for (const Prompt& prompt : inputs.prompts.prompts)
    shape.prompt_tokens += static_cast<double>(prompt.tokens.size());
  shape.prompt_tokens /= static_cast<double>(inputs.prompts.prompts.size());
  shape.groups = plan.layout.groups();
  shape.max_batch = inputs.config.engine.max_batch;
  shape.kv_positions = std::int64_t{inputs.owners(plan.layout.placement.least_tp())} *
                       plan.memory.kv.blocks * inputs.config.engine.kv_block;
  const auto seconds_at = [&](double tokens) {
    shape.response_tokens = tokens;
    return run_seconds(*plan.costs.profile, shape);
  };
  const double longest = inputs.sizes.mean_max_tokens;
  const double most = seconds_at(longest);
  std::string text = fmt::format(
      "  time: about {} if responses have {:.0f} tokens on average, {} if they have {:.0f} "
      "(estimate without speculation, from engine.profile)\n",
      duration_text(seconds_at(longest / 2)), longest / 2, duration_text(most), longest);
  if (limit.seconds && most > *limit.seconds)
    text +=
        "  warning: the longer time exceeds the time limit, so the run may stop early and have to "
        "be resumed\n";
  return text;
}

/// Names absent weights and tokenizers, and says what the plan uses in their place. The text ends
/// with the subject of "... is in order": "everything", or "all else" if files are absent.
std::string absence_text(const Inputs& inputs) {
  if (inputs.absent.empty()) return "everything";
  std::string text;
  for (const std::string& what : inputs.absent) text += fmt::format("  not there yet: {}\n", what);
  return text + fmt::format(
                    "  the plan takes models' shapes from config.json{}\nall else",
                    inputs.prompts.estimated
                        ? "; prompt lengths are estimated as one token for every four bytes of text"
                        : "");
}

}  // namespace

ExitCode check(const fabric::MpiEnvironment& mpi, const CheckArguments& arguments) {
  if (mpi.size() > 1 && arguments.machine.elsewhere()) {
    together(mpi, [] {
      throw UsageError(
          "check: --ranks, --nodes, --ranks-per-node, --cores, --host-memory, --gpus and "
          "--gpu-memory describe another machine, and are allowed only if check runs as a single "
          "process (without mpirun or srun); with more ranks, check plans for the job's own nodes");
    });
  }
  const PlannedMachine stated = with_slurm(arguments.machine);
  const bool planned = mpi.size() == 1 && stated.elsewhere();
  Standing standing;
  io::RunConfig config = read_config(mpi, arguments.run, io::Purpose::run);
  const Machine machine = find_machine(mpi, config.engine, planned ? &stated : nullptr);
  const Inputs inputs = read_inputs(mpi, std::move(config), standing, planned && stated.stated);
  const Plan plan = make_plan(mpi, inputs, machine);
  together(mpi, [&] {
    if (mpi.rank() != 0) return;
    // Set only with --resume, because manifest_of() reads the weights.
    std::optional<io::RunManifest> resumed;
    if (arguments.run.resume) {
      if (inputs.target.weights == nullptr) {
        throw DataError(fmt::format(
            "--resume: a run goes on only with the weights that it began with, and {} has none",
            inputs.config.model.path));
      }
      resumed = manifest_of(inputs, machine.backend);
      (void)begun_responses(inputs, *resumed);
    }
    const std::string output =
        io::RunDirectory::examine(inputs.config.output.directory, resumed ? &*resumed : nullptr);
    if (inputs.text.tokenizer) try_scorer(inputs);
    const TimeLimit limit = time_limit(inputs.config.limits.wall_clock);
    fmt::print("{}layout\n{}{}{}  output {}\n{}{} is in order: {} to generate\n",
               banner_text(inputs, machine, static_cast<int>(machine.ranks.size())),
               plan_text(inputs, machine, plan), speculation_text(plan),
               circumstances_text(inputs, machine, limit), output, time_text(inputs, plan, limit),
               absence_text(inputs), counted(inputs.sizes.responses, "response"));
    if (std::fflush(stdout) != 0) throw IoError("cannot write to standard output");
  });
  return ExitCode::done;
}

}  // namespace paceline::app
