#include "app/simulation/simulation_setup.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "app/assembly/backend_choice.hpp"
#include "app/assembly/coordination.hpp"
#include "app/assembly/draft_servers.hpp"
#include "app/assembly/weight_store.hpp"
#include "app/commands/report.hpp"
#include "app/simulation/simulated_costs.hpp"
#include "app/simulation/simulated_work.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/policy/place/layout.hpp"

namespace paceline::app {
namespace {

/// A model for roles, layouts and KV, whatever it is made of. Latent attention keeps one vector for
/// a position; here it counts as one head, its halves as key and value.
ModelConfig modelled(const ModelConfig& priced, const Auto<std::int32_t>& context) {
  if (!context && priced.max_position == 0)
    throw UsageError("simulation.context: config.json has no max_position_embeddings; set it");
  ModelConfig model = priced;
  model.family = &model::llama;  // a dense decoder
  model.kv_heads = priced.latent ? 1 : priced.kv_heads;
  model.head_dim = priced.kv_width() / (2 * model.kv_heads);
  model.latent.reset();
  model.experts.reset();
  model.max_position = context.value_or(priced.max_position);
  if (model.dtype == DType::f16) model.dtype = DType::bf16;
  return model;
}

/// Facts of all ranks of the modelled nodes.
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

/// The modelled backend. The memory of GPUs is known; hosts are modelled to have enough.
BackendChoice backend_of(const Setup& setup) {
  const io::SimulationSection& simulation = setup.config.simulation;
  BackendChoice choice;
  choice.name = setup.conditions.backend;
  choice.isa = setup.conditions.isa;
  if (choice.name != "cuda") {
    if (!simulation.gpu_memory) return choice;
    throw UsageError(fmt::format(
        "simulation.gpu_memory: expected auto where costs are those of a CPU ({}), found {} bytes",
        *setup.config.engine.profile, *simulation.gpu_memory));
  }
  choice.device = 0;
  const std::uint64_t of_each = simulation.gpu_memory.value_or(io::SimulationSection::kGpuMemory);
  choice.memory = simulation.gpus_per_rank * plannable_gpu_memory(of_each);
  return choice;
}

/// Plans the layout. Where no setting gives the degree, the profile or the GPUs' memory does.
void lay_out(Setup& setup, std::optional<int> drafters, const std::string& reason) {
  policy::LayoutFacts facts;
  facts.ranks = static_cast<int>(setup.facts.size());
  facts.segments = setup.model.segments();
  facts.weight_bytes = target_bytes(setup, 1);
  facts.memory_per_rank = setup.backend.memory;
  for (const fabric::RankFacts& rank : setup.facts) facts.node_of_rank.push_back(rank.node);
  const io::LayoutSection& layout = setup.config.layout;
  std::vector<std::int32_t> degree;
  if (!setup.config.simulation.gpu_tables) degree = {setup.conditions.tp};
  setup.layout = policy::plan_layout(
      facts, {layout.verifier_tp.value_or(degree), layout.verifier_groups, drafters, reason});
}

}  // namespace

SimulationSetup prepare_simulation(const RunArguments& arguments) {
  SimulationSetup simulation;
  Setup& setup = simulation.setup;
  setup.config = read_config(arguments, io::Purpose::simulation);
  settle_mode(setup);
  setup.priced = io::load_model_sizes(model::families(), setup.config.model.path);
  setup.model = modelled(*setup.priced, setup.config.simulation.context);
  setup.compute = setup.config.model.dtype.value_or(setup.model.dtype);
  setup.drafters = read_drafter_shapes(setup.config.speculation);
  setup.facts = facts_of(setup.config.simulation);

  simulation.stop_points = recorded_trees(setup.config);
  simulation.workload =
      std::make_unique<sim::Workload>(simulated_work(setup, simulation.stop_points.get()));
  const sim::Workload& workload = *simulation.workload;
  if (replays(setup.config)) {
    setup.config.prompts.samples = static_cast<std::int32_t>(workload.requests.front().size());
    for (const auto& samples : workload.requests) {
      for (const sim::ModelledRequest& r : samples)
        setup.config.sampling.max_tokens = std::max(setup.config.sampling.max_tokens, r.length);
    }
  }
  setup.prompts.prompts = workload.prompts;
  setup.stops = {sim::kModelledStop};
  for (const Prompt& prompt : workload.prompts) {
    setup.longest_prompt =
        std::max(setup.longest_prompt, static_cast<std::int32_t>(prompt.tokens.size()));
  }
  setup.mean_max_tokens = setup.config.sampling.max_tokens;
  setup.responses = setup.requests();
  setup.longest_sequence =
      std::min(setup.model.max_position, setup.longest_prompt + setup.config.sampling.max_tokens);
  simulation.responses = std::make_unique<sim::Responses>(workload, setup.config.sampling.seed,
                                                          setup.config.model.weight_version);

  // A profile says whether there are GPUs. Their memory and the model then give the degree, for
  // which costs are made by the GPU tables.
  std::optional<CostTable> measured = costs_by_profile(setup);
  setup.conditions.backend = "cuda";
  if (measured) setup.conditions = measured->conditions;
  setup.backend = backend_of(setup);
  lay_out(setup, setup.config.layout.drafters, "");
  setup.profile = measured ? std::move(*measured) : costs_by_gpu_tables(setup);
  const int measured_tp = setup.profile->conditions.tp;
  setup.conditions = setup.profile->conditions;
  setup.threads = setup.conditions.threads;
  // Plans need costs at the groups' degree.
  if (const std::vector<int> degrees = setup.layout.placement.degrees(); degrees.size() == 1) {
    setup.profile = of_another_degree(std::move(*setup.profile), degrees.front());
    setup.conditions = setup.profile->conditions;
  }
  choose_speculation(setup, history_of(workload.acceptance));
  const SpeculationChoice& choice = setup.speculation;
  put_drafters_in_order(setup);
  lay_out(setup, choice.drafter_ranks, choice.reason);
  require_chains(setup);
  place_draft_servers(setup);
  plan_memory(setup);
  setup.model.vocab = workload.vocabulary;  // from here on tokens are stand-ins
  const std::vector<int> degrees = setup.layout.placement.degrees();
  for (const int tp : degrees) simulation.costs[tp] = of_another_degree(*setup.profile, tp);
  if (degrees != std::vector{measured_tp}) {
    setup.layout.explanation.push_back(
        fmt::format("warning: costs of tensor-parallel degree {} stand for those of {}, as if work "
                    "were shared out evenly and summing up took no time",
                    measured_tp, fmt::join(degrees, ", ")));
  }
  return simulation;
}

std::string simulation_text(const Setup& setup) {
  const io::SimulationSection& simulation = setup.config.simulation;
  std::string text = fmt::format(
      "{} of {}{}; {} to {}\n", counted(simulation.nodes, "node"),
      counted(simulation.ranks_per_node, "rank"),
      simulation.gpus_per_rank > 1 ? fmt::format(" of {} GPUs", simulation.gpus_per_rank) : "",
      counted(setup.requests(), "response"), counted(setup.prompts.prompts.size(), "prompt"));
  for (const std::string& line : setup.layout.explanation) text += "  " + line + "\n";
  text += fmt::format("  {}\n  {}\n  {}\n  costs by {}\n", setup.kv.explanation, chunk_text(setup),
                      setup.kv_pool.explanation,
                      simulation.gpu_tables ? *simulation.gpu_tables + " (simulation.gpu_tables)"
                                            : *setup.config.engine.profile + " (engine.profile)");
  text += memory_use_text(setup);
  if (!setup.absent.empty())
    text += fmt::format(
        "  lengths of prompts are estimated, a token for every four bytes of text: there is no "
        "{}\n",
        setup.absent.front());
  return text + speculation_text(setup);
}

}  // namespace paceline::app
