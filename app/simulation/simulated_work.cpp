#include "app/simulation/simulated_work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>
#include <vector>

#include "app/terminal/standing.hpp"
#include "io/measured/length_histogram_file.hpp"
#include "io/run/run_replay.hpp"
#include "io/telemetry/telemetry_reader.hpp"
#include "runtime/core/error.hpp"
#include "runtime/sim/replay.hpp"

namespace paceline::app {
namespace {

/// Acceptance of a drafter's tokens without simulation.workload.acceptance. `trees`: from
/// recorded_trees(). `history`: simulation.workload.history.
sim::MethodAcceptance known_acceptance(const ConfiguredDrafter& drafter,
                                       const sim::StopPoints* trees, double history) {
  switch (drafter.setting.method) {
    case io::DrafterMethod::ngram:
      return sim::ngram_acceptance();
    case io::DrafterMethod::suffix: {
      sim::MethodAcceptance acceptance = sim::suffix_acceptance();
      acceptance.history = history;
      return acceptance;
    }
    case io::DrafterMethod::dflash:
    case io::DrafterMethod::eagle3:
    case io::DrafterMethod::mtp: {
      sim::MethodAcceptance acceptance = sim::draft_model_acceptance(drafter.name);
      acceptance.mean = trees->acceptance();
      acceptance.spread = 0;  // requests differ by the trees that they get
      return acceptance;
    }
    case io::DrafterMethod::model:
      return sim::draft_model_acceptance(drafter.name);
  }
  throw std::logic_error("a drafter without a method");
}

sim::AcceptanceSettings acceptance_of(const Inputs& inputs, const sim::StopPoints* trees) {
  const io::SimulatedWorkload& settings = inputs.config.simulation.workload;
  sim::AcceptanceSettings acceptance;
  for (const ConfiguredDrafter& drafter : inputs.drafters)
    acceptance.methods.push_back(known_acceptance(drafter, trees, settings.history));
  if (settings.acceptance && !inputs.drafters.empty()) {
    const std::vector<io::DrafterSetting>& drafters = inputs.config.speculation.drafters;
    if (settings.acceptance->size() != drafters.size()) {
      throw UsageError(
          fmt::format("simulation.workload.acceptance: expected {} numbers, one for each of "
                      "speculation.drafters, found {}",
                      drafters.size(), settings.acceptance->size()));
    }
    for (std::size_t d = 0; d < inputs.drafters.size(); ++d) {
      const auto at = std::find(drafters.begin(), drafters.end(), inputs.drafters[d].setting);
      acceptance.methods[d].mean = (*settings.acceptance)[at - drafters.begin()];
    }
  }
  return acceptance;
}

sim::Workload replayed(const Inputs& inputs, const std::string& directory,
                       const sim::StopPoints* trees) {
  const RecordedRun run = io::read_recorded_run(directory);
  for (const ConfiguredDrafter& drafter : inputs.drafters) {
    if (std::find(run.drafters.begin(), run.drafters.end(), drafter.name) != run.drafters.end())
      continue;
    throw UsageError(
        fmt::format("simulation.workload.lengths: {} has no drafts by {}; name a run whose "
                    "verifiers drafted with it (speculation.mode: coupled)",
                    directory, drafter.name));
  }
  return sim::replayed_workload(run, acceptance_of(inputs, trees), inputs.config.sampling.seed);
}

std::vector<std::int32_t> lengths_of_file(Inputs& inputs) {
  Standing standing;
  inputs.text = read_tokenizer(inputs.config, inputs.target.config, standing);
  read_prompts(inputs, true);
  std::vector<std::int32_t> lengths;
  for (const Prompt& prompt : inputs.prompts.prompts)
    lengths.push_back(static_cast<std::int32_t>(prompt.tokens.size()));
  inputs.prompts = {};  // the workload will have prompts of its own
  return lengths;
}

sim::TurnSettings turns_of(const io::RunConfig& config) {
  const io::SimulatedTurns& said = config.simulation.workload.turns;
  sim::TurnSettings turns;
  turns.most = config.environment.max_turns;
  turns.longest = config.environment.max_tokens_turn.value_or(0);
  turns.timeout = config.environment.timeout;
  turns.attempts = config.environment.attempts;
  const auto take = [](const char* name, const Auto<double>& median, const Auto<double>& p99,
                       sim::Lognormal& of) {
    of.median = median.value_or(of.median);
    of.p99 = p99.value_or(std::max(of.p99, of.median));
    if (of.p99 < of.median) {
      throw UsageError(fmt::format(
          "simulation.workload.turns.{}p99: expected at least the median of {}, found {}", name,
          of.median, of.p99));
    }
  };
  take("", said.median, said.p99, turns.turns);
  take("seconds_", said.seconds, said.seconds_p99, turns.seconds);
  take("tokens_", said.tokens, said.tokens_p99, turns.tokens);
  return turns;
}

sim::Workload drawn(Inputs& inputs, const sim::StopPoints* trees) {
  const io::SimulatedWorkload& settings = inputs.config.simulation.workload;
  sim::WorkloadSettings work;
  work.seed = inputs.config.sampling.seed;
  const io::SimulatedLengths& lengths = settings.lengths;
  const bool lengths_said = settings.prompt_tokens || !lengths.path.empty();
  if (!inputs.config.prompts.path.empty() && (!settings.prompts || !lengths_said)) {
    std::vector<std::int32_t> of_file = lengths_of_file(inputs);
    work.prompts = static_cast<std::int32_t>(of_file.size());
    if (!lengths_said) work.prompt_tokens = std::move(of_file);
  }
  work.prompts = settings.prompts.value_or(work.prompts);
  work.samples = inputs.config.prompts.samples;
  work.max_tokens = inputs.config.sampling.max_tokens;
  work.context = inputs.target.config.max_position;
  work.max_prompt_tokens = work.context - work.max_tokens;
  if (work.prompt_tokens.empty() && work.max_prompt_tokens < 1) {
    throw UsageError(fmt::format(
        "sampling.max_tokens: {} leaves no room for a prompt in the model's context of {} tokens",
        inputs.config.sampling.max_tokens, inputs.target.config.max_position));
  }
  work.length_correlation = lengths.correlation;
  work.acceptance = acceptance_of(inputs, trees);
  auto responses = sim::LengthDistribution::deepseek_r1();
  if (lengths.median || lengths.p99) {
    const double median = lengths.median.value_or(responses.quantile(0.5));
    const double p99 = lengths.p99.value_or(responses.quantile(0.99));
    if (p99 < median) {
      throw UsageError(fmt::format(
          "simulation.workload.lengths.p99: expected at least the median of {}, found {}", median,
          p99));
    }
    responses = sim::LengthDistribution::lognormal(median, p99);
  }
  auto prompts = sim::LengthDistribution::fixed(settings.prompt_tokens.value_or(512));
  if (!lengths.path.empty()) {
    const LengthHistogram counted = io::read_length_histogram(lengths.path);
    responses = sim::LengthDistribution::of(counted.responses);
    if (!settings.prompt_tokens) prompts = sim::LengthDistribution::of(counted.prompts);
  }
  if (inputs.config.converses()) work.turns = turns_of(inputs.config);
  return sim::make_workload(work, responses, prompts);
}

}  // namespace

std::unique_ptr<sim::StopPoints> recorded_trees(const io::RunConfig& config) {
  const io::DrafterSetting* head = config.speculation.head();
  if (head == nullptr) return nullptr;
  const std::optional<std::string>& directory = config.simulation.workload.stop_points;
  if (!directory) {
    throw UsageError(
        fmt::format("simulation.workload.stop_points: expected a run that recorded draft trees "
                    "(record_stops of its head), for the simulated drafts of {}",
                    head->path.empty() ? "mtp" : head->path));
  }
  std::vector<StopPoint> points = io::read_stop_points(*directory);
  if (points.empty()) {
    throw UsageError(
        fmt::format("simulation.workload.stop_points: {} recorded no draft trees; expected a run "
                    "whose head was set to record_stops",
                    *directory));
  }
  return std::make_unique<sim::StopPoints>(std::move(points));
}

bool replays(const io::RunConfig& config) {
  std::error_code ignored;
  return std::filesystem::is_directory(config.simulation.workload.lengths.path, ignored);
}

sim::Workload simulated_work(Inputs& inputs, const sim::StopPoints* trees) {
  if (!replays(inputs.config)) return drawn(inputs, trees);
  return replayed(inputs, inputs.config.simulation.workload.lengths.path, trees);
}

DraftHistory history_of(const sim::AcceptanceSettings& acceptance) {
  constexpr double kTokens = 1e5;  // tried tokens of each drafter, enough to outweigh any prior
  DraftHistory history;
  for (const sim::MethodAcceptance& method : acceptance.methods)
    history.update(method.name, kTokens, kTokens * method.with_history(method.mean));
  return history;
}

}  // namespace paceline::app
