#include "app/simulation_setup.hpp"
#include "app/coordination.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/draft_servers.hpp"
#include "app/simulated_costs.hpp"
#include "io/checkpoint/model_shape_reader.hpp"
#include "io/hdf5/run_replay.hpp"
#include "io/hdf5/telemetry_reader.hpp"
#include "io/traces/length_histogram_file.hpp"
#include "runtime/core/error.hpp"
#include "runtime/kv/sequences.hpp"
#include "runtime/model/sharding.hpp"
#include "runtime/policy/layout.hpp"
#include "runtime/sim/replay.hpp"

namespace paceline::app {
namespace {

/// What roles, layouts and KV go by of a model that no decoder runs. Latent attention keeps one
/// vector of a position, which counts as one head here: halves of it stand for key and value.
ModelConfig modelled(const ModelShape& shape, const io::Auto<std::int32_t>& context) {
  if (!context && shape.context == 0)
    throw UsageError("simulation.context: config.json has no max_position_embeddings; set it");
  ModelConfig model;
  model.vocab = shape.vocab;
  model.hidden = shape.hidden;
  model.intermediate = shape.intermediate;
  model.layers = shape.layers;
  model.heads = shape.heads;
  model.kv_heads = shape.latent ? 1 : shape.kv_heads;
  model.head_dim = static_cast<std::int32_t>(shape.kv_width() / (2 * model.kv_heads));
  model.max_position = context.value_or(shape.context);
  model.dtype = shape.bytes_per_parameter == 4 ? DType::f32 : DType::bf16;
  return model;
}

/// Null without a head.
std::unique_ptr<sim::StopPoints> recorded_trees(const io::RunConfig& config) {
  const std::vector<io::DrafterSetting>& drafters = config.speculation.drafters;
  const auto head = std::find_if(drafters.begin(), drafters.end(), [](const auto& drafter) {
    return drafter.method == io::DrafterMethod::eagle3;
  });
  if (head == drafters.end()) return nullptr;
  const std::optional<std::string>& directory = config.simulation.workload.stop_points;
  if (!directory) {
    throw UsageError(
        fmt::format("simulation.workload.stop_points: expected a run that recorded draft trees "
                    "(speculation.record_stops), by which {} is to draft",
                    head->path));
  }
  std::vector<StopPoint> points = io::read_stop_points(*directory);
  if (points.empty()) {
    throw UsageError(
        fmt::format("simulation.workload.stop_points: {} recorded no draft trees; expected a run "
                    "with speculation.record_stops",
                    *directory));
  }
  return std::make_unique<sim::StopPoints>(std::move(points));
}

/// How a drafter's tokens are accepted where the configuration does not say. `trees`: a head's.
sim::MethodAcceptance known_acceptance(const ConfiguredDrafter& drafter,
                                       const sim::StopPoints* trees) {
  switch (drafter.setting.method) {
    case io::DrafterMethod::ngram:
      return sim::ngram_acceptance();
    case io::DrafterMethod::suffix:
      return sim::suffix_acceptance();
    case io::DrafterMethod::eagle3: {
      sim::MethodAcceptance acceptance = sim::draft_model_acceptance(drafter.name);
      acceptance.mean = trees->acceptance();
      acceptance.spread = 0;  // it is the trees' own
      return acceptance;
    }
    case io::DrafterMethod::model:
      break;
  }
  return sim::draft_model_acceptance(drafter.name);
}

sim::AcceptanceSettings acceptance_of(const Setup& setup, const sim::StopPoints* trees) {
  const io::SimulatedWorkload& settings = setup.config.simulation.workload;
  sim::AcceptanceSettings acceptance;
  for (const ConfiguredDrafter& drafter : setup.drafters)
    acceptance.methods.push_back(known_acceptance(drafter, trees));
  if (settings.acceptance && !setup.drafters.empty()) {
    const std::vector<io::DrafterSetting>& drafters = setup.config.speculation.drafters;
    if (settings.acceptance->size() != drafters.size()) {
      throw UsageError(
          fmt::format("simulation.workload.acceptance: expected a number for each of the {} of "
                      "speculation.drafters, found {}",
                      drafters.size(), settings.acceptance->size()));
    }
    for (std::size_t d = 0; d < setup.drafters.size(); ++d) {
      const auto at = std::find(drafters.begin(), drafters.end(), setup.drafters[d].setting);
      acceptance.methods[d].mean = (*settings.acceptance)[at - drafters.begin()];
    }
  }
  for (sim::MethodAcceptance& method : acceptance.methods) {
    if (method.spread > 0) method.spread = settings.acceptance_spread.value_or(method.spread);
  }
  acceptance.drift = settings.drift.value_or(acceptance.drift);
  acceptance.token_agreement = settings.token_agreement.value_or(acceptance.token_agreement);
  acceptance.request_agreement = settings.request_agreement.value_or(acceptance.request_agreement);
  return acceptance;
}

sim::Workload replayed(const Setup& setup, const std::string& directory,
                       const sim::StopPoints* trees) {
  const RecordedRun run = io::read_recorded_run(directory);
  for (const ConfiguredDrafter& drafter : setup.drafters) {
    if (std::find(run.drafters.begin(), run.drafters.end(), drafter.name) != run.drafters.end())
      continue;
    throw UsageError(fmt::format(
        "simulation.workload.replay: {} says nothing of drafter {}; name a run in which verifiers "
        "drafted by it (speculation.mode: coupled)",
        directory, drafter.name));
  }
  return sim::replayed_workload(run, acceptance_of(setup, trees), setup.config.simulation.seed);
}

sim::Workload drawn(const Setup& setup, const sim::StopPoints* trees) {
  const io::SimulatedWorkload& settings = setup.config.simulation.workload;
  sim::WorkloadSettings work;
  work.seed = setup.config.simulation.seed;
  work.prompts = settings.prompts;
  work.samples = setup.config.prompts.samples;
  work.max_tokens = setup.config.sampling.max_tokens;
  work.max_prompt_tokens = setup.model.max_position - setup.config.sampling.max_tokens;
  if (work.max_prompt_tokens < 1) {
    throw UsageError(fmt::format(
        "sampling.max_tokens: {} leaves no room for a prompt in the model's context of {} tokens",
        setup.config.sampling.max_tokens, setup.model.max_position));
  }
  work.length_correlation = settings.length_correlation;
  work.acceptance = acceptance_of(setup, trees);
  auto responses = sim::LengthDistribution::deepseek_r1();
  if (settings.median_tokens || settings.p99_tokens) {
    const double median = settings.median_tokens.value_or(responses.quantile(0.5));
    const double p99 = settings.p99_tokens.value_or(responses.quantile(0.99));
    if (settings.lengths) {
      throw UsageError(
          "simulation.workload.median_tokens, p99_tokens: expected none beside lengths that were "
          "counted (simulation.workload.lengths)");
    }
    if (p99 < median) {
      throw UsageError(fmt::format(
          "simulation.workload.p99_tokens: expected at least the median of {}, found {}", median,
          p99));
    }
    responses = sim::LengthDistribution::lognormal(median, p99);
  }
  auto prompts = sim::LengthDistribution::fixed(settings.prompt_tokens.value_or(512));
  if (settings.lengths) {
    const LengthHistogram counted = io::read_length_histogram(*settings.lengths);
    responses = sim::LengthDistribution::of(counted.responses);
    if (!settings.prompt_tokens) prompts = sim::LengthDistribution::of(counted.prompts);
  }
  return sim::make_workload(work, responses, prompts);
}

/// Ranks of as many nodes as are modelled.
std::vector<fabric::RankFacts> facts_of(const io::SimulationSection& simulation) {
  std::vector<fabric::RankFacts> facts;
  fabric::RankFacts fact;
  fact.local_ranks = simulation.ranks_per_node;
  fact.sharers = simulation.ranks_per_node;
  fact.cores = simulation.cores.value_or(simulation.ranks_per_node);
  for (fact.node = 0; fact.node < simulation.nodes; ++fact.node) {
    for (fact.local_rank = 0; fact.local_rank < fact.local_ranks; ++fact.local_rank)
      facts.push_back(fact);
  }
  return facts;
}

/// What earlier steps of the training would have seen of each drafter.
DraftHistory history_of(const sim::AcceptanceSettings& acceptance) {
  constexpr double kTokens = 1e5;  // of each: beside them what is assumed beforehand is nothing
  DraftHistory history;
  for (const sim::MethodAcceptance& method : acceptance.methods)
    history.update(method.name, kTokens, kTokens * method.mean);
  return history;
}

void lay_out(Setup& setup, std::optional<int> drafters, const std::string& reason) {
  policy::LayoutFacts facts;
  facts.ranks = static_cast<int>(setup.facts.size());
  facts.segments = setup.model.segments();
  for (const fabric::RankFacts& rank : setup.facts) facts.node_of_rank.push_back(rank.node);
  const io::LayoutSection& layout = setup.config.layout;
  const std::vector<std::int32_t> degree{setup.conditions.tp};  // of the costs that are known
  setup.layout = policy::plan_layout(
      facts, {layout.verifier_tp.value_or(degree), layout.verifier_groups, drafters, reason});
}

void plan_kv(Setup& setup) {
  const io::EngineSection& engine = setup.config.engine;
  setup.longest_sequence =
      std::min(setup.model.max_position, setup.longest_prompt + setup.config.sampling.max_tokens);
  const kernels::KvShape shape{setup.model.layers,
                               setup.model.kv_heads / setup.layout.placement.least_tp(),
                               setup.model.head_dim, engine.kv_block, setup.compute};
  setup.kv = policy::plan_kv(
      {.block_bytes = shape.block_bytes(),
       .memory_per_rank = 0,
       .shared = false,
       .max_batch = engine.max_batch,
       .blocks_per_request = kv::Sequences::blocks_needed(setup.longest_sequence, engine.kv_block)},
      engine.kv_memory);
  // Of the models' memory nothing is in engine.kv_memory: here it comes beside it.
  std::uint64_t lent = 0;
  for (const ConfiguredDrafter& drafter : setup.drafters) {
    if (drafter.model == nullptr || !has_draft_models(setup, Role::verifier)) continue;
    const ModelConfig& draft = drafter.model->config;
    const kernels::KvShape of_draft{draft.layers, draft.kv_heads, draft.head_dim, engine.kv_block,
                                    drafter.model->compute};
    lent += model::weight_bytes(draft, drafter.model->compute, 1) +
            of_draft.block_bytes() * setup.kv.blocks;
  }
  if (setup.config.elastic())
    setup.kv_gain = static_cast<std::int32_t>(
        std::min<std::uint64_t>(lent / shape.block_bytes(), INT32_MAX - setup.kv.blocks));
  const io::KvPoolSection& pool = setup.config.kv_pool;
  setup.kv_pool = policy::plan_kv_pool(
      {.host_memory = 0,  // nodes are modelled that have enough
       .taken = 0,
       .block_bytes = shape.block_bytes(),
       .most = shape.block_bytes() * setup.responses *
               kv::Sequences::blocks_needed(setup.longest_sequence, engine.kv_block)},
      {pool.memory, pool.disk.has_value()});
}

}  // namespace

SimulationSetup prepare_simulation(const RunArguments& arguments) {
  SimulationSetup simulation;
  Setup& setup = simulation.setup;
  setup.config = read_config(arguments, io::Purpose::simulation);
  settle_mode(setup);
  setup.model =
      modelled(io::load_model_shape(setup.config.model.path), setup.config.simulation.context);
  setup.compute = setup.config.model.dtype.value_or(setup.model.dtype);
  setup.drafters = read_drafter_shapes(setup.config.speculation);
  setup.facts = facts_of(setup.config.simulation);

  const std::optional<std::string>& replay = setup.config.simulation.workload.replay;
  simulation.stop_points = recorded_trees(setup.config);
  const sim::StopPoints* trees = simulation.stop_points.get();
  simulation.workload = std::make_unique<sim::Workload>(replay ? replayed(setup, *replay, trees)
                                                               : drawn(setup, trees));
  const sim::Workload& workload = *simulation.workload;
  if (replay) {
    setup.config.prompts.samples = static_cast<std::int32_t>(workload.requests.front().size());
    for (const auto& samples : workload.requests) {
      for (const sim::ModelledRequest& r : samples)
        setup.config.sampling.max_tokens = std::max(setup.config.sampling.max_tokens, r.length);
    }
  }
  setup.prompts.prompts = workload.prompts;
  setup.model.vocab = workload.vocabulary;
  setup.stops = {sim::kModelledStop};
  for (const Prompt& prompt : workload.prompts) {
    setup.longest_prompt =
        std::max(setup.longest_prompt, static_cast<std::int32_t>(prompt.tokens.size()));
  }
  setup.responses = setup.requests();
  simulation.responses = std::make_unique<sim::Responses>(workload, setup.config.sampling.seed,
                                                          setup.config.model.weight_version);

  setup.profile = simulated_costs(setup);
  setup.conditions = setup.profile->conditions;
  setup.threads = setup.conditions.threads;
  lay_out(setup, setup.config.layout.drafters, "");
  // Plans are for the degree that groups have.
  if (const std::vector<int> degrees = setup.layout.placement.degrees(); degrees.size() == 1) {
    setup.profile = of_another_degree(std::move(*setup.profile), degrees.front());
    setup.conditions = setup.profile->conditions;
  }
  choose_speculation(setup, history_of(workload.acceptance));
  const SpeculationChoice& choice = setup.speculation;
  put_drafters_in_order(setup);
  lay_out(setup, choice.drafter_ranks, choice.reason);
  place_draft_servers(setup);
  plan_kv(setup);
  for (const int tp : setup.layout.placement.degrees())
    simulation.costs[tp] = of_another_degree(*setup.profile, tp);
  return simulation;
}

std::string simulation_text(const Setup& setup) {
  const io::SimulationSection& simulation = setup.config.simulation;
  std::string text = fmt::format(
      "{} nodes of {} ranks{}; {} responses to {} prompts\n", simulation.nodes,
      simulation.ranks_per_node,
      simulation.gpus_per_rank > 1 ? fmt::format(" of {} GPUs", simulation.gpus_per_rank) : "",
      setup.requests(), setup.prompts.prompts.size());
  for (const std::string& line : setup.layout.explanation) text += "  " + line + "\n";
  text += fmt::format("  {}\n  {}\n  {}\n  costs by {}\n", setup.kv.explanation, chunk_text(setup),
                      setup.kv_pool.explanation,
                      simulation.gpu_tables ? *simulation.gpu_tables + " (simulation.gpu_tables)"
                                            : *setup.config.engine.profile + " (engine.profile)");
  return text + speculation_text(setup);
}

}  // namespace paceline::app
