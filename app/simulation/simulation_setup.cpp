#include "app/simulation/simulation_setup.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "app/assembly/coordination.hpp"
#include "app/assembly/draft_servers.hpp"
#include "app/assembly/machine.hpp"
#include "app/assembly/plan_text.hpp"
#include "app/assembly/weight_store.hpp"
#include "app/simulation/simulated_costs.hpp"
#include "app/simulation/simulated_work.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/policy/place/layout.hpp"

namespace paceline::app {
namespace {

/// A dense model without pictures that stands in for `priced`, with as many layers and the same KV.
/// For latent attention it has one KV head, because every rank keeps each position's vector whole.
ModelConfig modelled(const ModelConfig& priced, const Auto<std::int32_t>& context) {
  if (!context && priced.max_position == 0)
    throw UsageError(
        "simulation.context: expected a number, because config.json has no "
        "max_position_embeddings; found auto");
  ModelConfig model = priced;
  model.family = &model::llama;  // any dense decoder would do
  if (priced.latent) model.kv_heads = 1;
  model.experts.reset();
  model.vision.reset();
  model.max_position = context.value_or(priced.max_position);
  if (model.dtype == DType::f16) model.dtype = DType::bf16;
  return model;
}

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

/// The modelled backend. Only GPU memory is limited; a host is assumed to have enough.
BackendChoice backend_of(const io::RunConfig& config, const CostConditions& costs) {
  const io::SimulationSection& simulation = config.simulation;
  BackendChoice choice;
  choice.name = costs.backend;
  choice.isa = costs.isa;
  if (choice.name != "cuda") {
    if (!simulation.gpu_memory) return choice;
    throw UsageError(fmt::format(
        "simulation.gpu_memory: expected auto, because {} has costs of a CPU, found {} bytes",
        *config.engine.profile, *simulation.gpu_memory));
  }
  choice.device = 0;
  const std::uint64_t of_each = simulation.gpu_memory.value_or(io::SimulationSection::kGpuMemory);
  choice.memory = simulation.gpus_per_rank * plannable_gpu_memory(of_each);
  return choice;
}

/// Reads the shapes of the target and the drafters from their config.json.
Inputs read_shapes(io::RunConfig config) {
  Inputs inputs;
  inputs.config = std::move(config);
  inputs.priced = io::load_model_sizes(model::families(), inputs.config.model.path);
  inputs.target.config = modelled(*inputs.priced, inputs.config.simulation.context);
  inputs.target.compute = inputs.config.model.dtype.value_or(inputs.target.config.dtype);
  inputs.drafters =
      read_drafter_shapes(inputs.config.speculation, inputs.config.model.path, *inputs.priced);
  return inputs;
}

/// The larger groups into which groups may join for the run's last requests, with costs from
/// simulation.gpu_tables.
TailGroups tail_groups_by_tables(const Inputs& inputs, const Machine& machine,
                                 const policy::Placement& first) {
  TailGroups tail;
  const std::vector<int> degrees = tail_degrees(inputs, machine, first);
  std::vector<int> known;
  for (const int tp : degrees) {
    try {
      tail.costs[tp] = costs_by_gpu_tables(inputs, tp);
      known.push_back(tp);
    } catch (const UsageError&) {  // no costs of this degree; larger ones are not tried
      if (inputs.config.layout.tail_tp) throw;
      break;
    }
  }
  if (tail.grow()) {
    tail.explanation = fmt::format(
        "groups join into groups of {} at the end of the run, if the last requests finish sooner "
        "that way (override: layout.tail_tp)",
        fmt::join(known, ", "));
  }
  return tail;
}

/// Like tail_groups_by_tables(), but with costs from engine.tail_profile.
TailGroups tail_groups_by_profile(const Inputs& inputs, const Machine& machine,
                                  const policy::Placement& first, const ProfiledCosts& costs) {
  TailGroups tail = read_tail_profile(inputs, machine, first, costs);
  for (auto& [tp, table] : tail.costs) {
    table = of_drafters(inputs, std::move(table),
                        "engine.tail_profile: " + *inputs.config.engine.tail_profile);
  }
  return tail;
}

/// Copies the workload into the inputs. For a replayed run, also takes prompts.samples from its
/// first prompt, and raises sampling.max_tokens to its longest response.
void take_workload(const sim::Workload& workload, bool replayed, Inputs& inputs) {
  io::RunConfig& config = inputs.config;
  if (replayed) {
    config.prompts.samples = static_cast<std::int32_t>(workload.requests.front().size());
    for (const auto& samples : workload.requests) {
      for (const sim::ModelledRequest& r : samples)
        config.sampling.max_tokens = std::max(config.sampling.max_tokens, r.length);
    }
  }
  inputs.target.config.vocab = workload.vocabulary;  // modelled tokens are from a small vocabulary
  inputs.ends.stops = {sim::kModelledStop};
  inputs.prompts.prompts = workload.prompts;
  inputs.sizes = {};
  for (std::size_t p = 0; p < workload.requests.size(); ++p) {
    inputs.prompts.prompts[p].samples = static_cast<std::uint32_t>(workload.requests[p].size());
    inputs.sizes.responses += workload.requests[p].size();
  }
  for (const Prompt& prompt : workload.prompts) {
    inputs.sizes.longest_prompt =
        std::max(inputs.sizes.longest_prompt, static_cast<std::int32_t>(prompt.tokens.size()));
  }
  inputs.sizes.mean_max_tokens = config.sampling.max_tokens;
  inputs.sizes.longest_sequence = std::min(
      inputs.target.config.max_position, inputs.sizes.longest_prompt + config.sampling.max_tokens);
}

}  // namespace

SimulationSetup prepare_simulation(io::RunConfig config) {
  SimulationSetup simulation;
  const bool converses = config.converses();
  if (replays(config)) config.environment = {};  // a recorded response is replayed as one turn
  config.sampling.logprobs = 0;                  // modelled tokens have no probabilities
  simulation.inputs = read_shapes(std::move(config));
  simulation.stop_points = recorded_trees(simulation.inputs.config);
  simulation.workload = std::make_unique<sim::Workload>(
      simulated_work(simulation.inputs, simulation.stop_points.get()));
  const sim::Workload& workload = *simulation.workload;
  take_workload(workload, replays(simulation.inputs.config), simulation.inputs);
  const Inputs& inputs = simulation.inputs;
  if (inputs.attention() == AttentionLayout::data)
    throw UsageError("layout.attention: simulations model only auto and tensor, found data");
  simulation.responses = std::make_unique<sim::Responses>(workload, inputs.config.sampling.seed,
                                                          inputs.config.model.weight_version);

  // If layout.verifier_tp is auto, groups have the profile's tensor-parallel degree. GPU tables do
  // not fix the degree, so with them GPU memory decides.
  std::optional<CostTable> measured = costs_by_profile(inputs);
  std::vector<std::int32_t> degree;
  CostConditions conditions;
  conditions.backend = "cuda";  // for GPU tables
  if (measured) {
    conditions = measured->conditions;
    degree = {conditions.tp};
  }
  Machine& machine = simulation.machine;
  machine.elsewhere = true;
  machine.ranks = facts_of(inputs.config.simulation);
  machine.backend = backend_of(inputs.config, conditions);
  const policy::Placement first =
      lay_out(inputs, machine, degree, inputs.config.layout.drafters, "").placement;
  const std::vector<int> first_degrees = first.degrees();
  const bool by_tables = !measured;
  CostTable table =
      measured ? std::move(*measured)
               : costs_by_gpu_tables(inputs, first_degrees.size() == 1
                                                 ? first_degrees.front()
                                                 : inputs.config.layout.verifier_tp->front());
  const int measured_tp = table.conditions.tp;
  machine.threads = table.conditions.threads;
  // If all groups have one degree, the plan needs costs at this degree.
  if (first_degrees.size() == 1) table = of_another_degree(std::move(table), first_degrees.front());
  const ProfiledCosts costs{table.conditions, table, ""};
  const TailGroups tail = by_tables ? tail_groups_by_tables(inputs, machine, first)
                                    : tail_groups_by_profile(inputs, machine, first, costs);
  Plan& plan = simulation.plan;
  plan = complete_plan(
      inputs, machine, degree, costs, tail,
      choose_speculation(inputs, first, costs, tail, history_of(workload.acceptance)));
  if (converses && !inputs.config.converses()) {
    plan.layout.explanation.emplace_back(
        "warning: conversations of a replayed run are not modelled: a response is one turn "
        "(environment.method)");
  }
  const std::vector<int> degrees = plan.layout.placement.degrees();
  for (const int tp : degrees) {
    simulation.costs[tp] =
        by_tables ? costs_by_gpu_tables(inputs, tp) : of_another_degree(table, tp);
  }
  simulation.costs.insert(plan.tail_groups.costs.begin(), plan.tail_groups.costs.end());
  if (inputs.config.simulation.instance > 1) {
    if (plan.layout.placement.groups.size() != machine.ranks.size() ||
        plan.best_of_n.roles_change) {
      throw UsageError(
          "simulation.instance: expected 1 where ranks draft or idle, because all ranks of an "
          "instance verify (set layout.drafters: 0, layout.verifier_groups: auto, "
          "speculation.best_of_n: false)");
    }
    simulation.instance = instance_costs(inputs);
  }
  if (!by_tables && degrees != std::vector{measured_tp}) {
    plan.layout.explanation.push_back(
        fmt::format("warning: costs of tensor-parallel degree {} stand for those of {}, as if work "
                    "were divided evenly and all-reduces took no time",
                    measured_tp, fmt::join(degrees, ", ")));
  }
  return simulation;
}

std::string simulation_text(const SimulationSetup& setup) {
  const Inputs& inputs = setup.inputs;
  const Plan& plan = setup.plan;
  const io::SimulationSection& simulation = inputs.config.simulation;
  std::string text = fmt::format(
      "{} of {}{}{}; {} to {}\n", counted(simulation.nodes, "node"),
      counted(simulation.ranks_per_node, "rank"),
      simulation.gpus_per_rank > 1 ? fmt::format(" of {} GPUs", simulation.gpus_per_rank) : "",
      simulation.instance > 1 ? fmt::format(", in instances of {}", simulation.instance) : "",
      counted(inputs.sizes.responses, "response"),
      counted(inputs.prompts.prompts.size(), "prompt"));
  for (const std::string& line : plan.layout.explanation) text += "  " + line + "\n";
  if (const std::string& servers = plan.draft_servers.explanation; !servers.empty())
    text += "  " + servers + "\n";
  text += fmt::format("  {}\n  {}\n  {}\n  costs from {}\n", plan.memory.kv.explanation,
                      chunk_text(inputs, plan), plan.memory.kv_pool.explanation,
                      simulation.gpu_tables ? *simulation.gpu_tables + " (simulation.gpu_tables)"
                                            : *inputs.config.engine.profile + " (engine.profile)");
  text += memory_use_text(setup.machine, plan);
  if (!inputs.absent.empty())
    text += fmt::format(
        "  prompt lengths are estimated as one token for every four bytes of text, because there "
        "is no {}\n",
        inputs.absent.front());
  return text + speculation_text(plan);
}

}  // namespace paceline::app
