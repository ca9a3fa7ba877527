#include "app/simulation/simulated_costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "app/assembly/cost_conditions.hpp"
#include "io/config/cost_profile.hpp"
#include "io/config/yaml_tree.hpp"
#include "io/measured/gpu_tables.hpp"
#include "runtime/core/error.hpp"
#include "runtime/sim/gpu_costs.hpp"

namespace paceline::app {
namespace {

/// Costs of transfers between groups. If there are several nodes, the costs are the network's,
/// because most pairs of groups are on different nodes.
TransferCosts transfers(const io::SimulationSection& simulation) {
  const io::SimulatedLinks& link = simulation.link;
  const double gpus = simulation.gpus_per_rank;
  return simulation.nodes > 1 ? TransferCosts{link.kNetworkLatency, gpus * link.network_bandwidth}
                              : TransferCosts{link.kNodeLatency, gpus * link.node_bandwidth};
}

CostCurve scaled(const CostCurve& curve, double factor) {
  std::vector<CostCurve::Point> points = curve.points();
  for (CostCurve::Point& point : points) point.seconds *= factor;
  std::vector<CostCurve::Attention> attention = curve.attention();
  for (CostCurve::Attention& a : attention) a.seconds *= factor;
  return CostCurve(std::move(points), std::move(attention), curve.context());
}

}  // namespace

CostTable of_another_degree(CostTable costs, int tp) {
  const double factor = static_cast<double>(costs.conditions.tp) / tp;
  if (factor == 1) return costs;
  costs.conditions.tp = tp;
  costs.decode = scaled(costs.decode, factor);
  costs.prefill = scaled(costs.prefill, factor);
  costs.drafted_position *= factor;
  return costs;
}

namespace {

/// Costs of n-gram and suffix-tree drafters on a verifier's CPU. `paceline profile` measured them
/// on a Zen 4 core with the embedded models, whose texts are short. A draft's first token costs a
/// search. Its next tokens cost little, because they follow the match that was found.
DrafterCosts lookup_costs(const ConfiguredDrafter& drafter) {
  const bool tree = drafter.setting.method == io::DrafterMethod::suffix;
  const double first = tree ? 2e-6 : 0.5e-6;
  const double round = 0.1e-6;
  return {drafter.name,
          CostCurve({{1, first}, {1024, 1024 * first}}),
          CostCurve({{1, round}, {1024, 1024 * round}}),
          {}};
}

/// Throws UsageError if the costs of a configured head do not follow from simulation.gpu_tables.
std::vector<sim::NamedDraft> priced_drafts(const Inputs& inputs) {
  const io::RunConfig& config = inputs.config;
  std::vector<sim::NamedDraft> drafts;
  for (const ConfiguredDrafter& drafter : inputs.drafters) {
    if (drafter.model == nullptr && drafter.head == nullptr) continue;
    if (drafter.head == nullptr) {
      drafts.push_back({drafter.name, drafter.model->config});
      continue;
    }
    const HeadConfig& head = drafter.head->config;
    if (mask_token(head)) {
      throw UsageError(fmt::format(
          "speculation.drafters: {} has no costs of {}: the tables cover only heads with one pass "
          "per token, and a {} drafts all tokens in one pass; set engine.profile instead of "
          "simulation.gpu_tables",
          *config.simulation.gpu_tables, drafter.setting.path, kind_of(head)));
    }
    drafts.push_back({drafter.name, layer_of(head), config.speculation.paths.value_or(1)});
    drafts.back().config.vocab = draft_vocab(head);
  }
  return drafts;
}

sim::GpuSystem system_of(const io::SimulatedLinks& link) {
  sim::GpuSystem system;
  system.nvlink = 2 * link.node_bandwidth;  // sum of both directions
  system.network.bandwidth = link.network_bandwidth;
  return system;
}

CostTable by_gpu_tables(const Inputs& inputs, int tp) {
  const io::RunConfig& config = inputs.config;
  const io::SimulationSection& simulation = config.simulation;
  const int gpus = tp * simulation.gpus_per_rank;
  if (simulation.gpus_per_rank > 1 && inputs.priced->latent) {
    throw UsageError(
        fmt::format("simulation.gpus_per_rank: expected 1, because each GPU of a rank would keep "
                    "the whole KV of latent attention (simulation.instance divides the experts "
                    "instead), found {}",
                    simulation.gpus_per_rank));
  }
  CostTable table;
  if (simulation.instance > 1) {
    if (gpus != 1)
      throw UsageError(fmt::format(
          "layout.verifier_tp, simulation.gpus_per_rank: expected 1, because the GPUs of an "
          "instance "
          "share only experts, found groups of {} GPUs (if the weights do not fit one GPU, raise "
          "simulation.instance)",
          gpus));
    table = instance_costs(inputs).table(simulation.instance);
  } else {
    try {
      table = sim::gpu_costs(io::load_gpu_tables(*simulation.gpu_tables), *inputs.priced, gpus,
                             priced_drafts(inputs), system_of(simulation.link));
    } catch (const std::invalid_argument& error) {  // see gpu_costs()
      throw UsageError(
          fmt::format("layout.verifier_tp, simulation.gpus_per_rank: {} has no costs of the model "
                      "on {} GPUs: {}",
                      *simulation.gpu_tables, gpus, error.what()));
    }
    table.conditions.tp = tp;  // in ranks; gpu_costs() has set the number of GPUs
    table.transfer->bandwidth *= simulation.gpus_per_rank;
  }
  const std::filesystem::path model = std::filesystem::path(config.model.path).lexically_normal();
  table.conditions.model = (model.has_filename() ? model : model.parent_path()).filename();
  for (const ConfiguredDrafter& drafter : inputs.drafters) {
    if (drafter.model == nullptr && drafter.head == nullptr)
      table.drafters.push_back(lookup_costs(drafter));
  }
  return table;
}

/// Throws UsageError if the profile was measured with another model, dtype, backend, instruction
/// set or number of threads than the configuration sets.
void require_holds(const Inputs& inputs, const CostTable& profile) {
  const io::EngineSection& engine = inputs.config.engine;
  CostConditions now = profile.conditions;
  now.model = shape_text(*inputs.priced, inputs.target.compute);
  if (engine.backend != "auto") now.backend = engine.backend;
  if (engine.isa != "auto" && now.backend == "cpu") now.isa = engine.isa;
  now.threads = engine.threads.value_or(now.threads);
  const std::string fault =
      difference(profile, now, {&now.tp, 1}, {}, inputs.target.compute, "this simulation");
  if (fault.empty()) return;
  throw UsageError(
      fmt::format("engine.profile: {} does not apply to this simulation: {}. Measure the simulated "
                  "configuration (paceline profile), or set simulation.gpu_tables",
                  *engine.profile, fault));
}

}  // namespace

sim::InstanceCosts instance_costs(const Inputs& inputs) {
  const io::SimulationSection& simulation = inputs.config.simulation;
  const std::string& directory = *simulation.gpu_tables;
  try {
    return sim::instance_costs(io::load_gpu_tables(directory), *inputs.priced, simulation.instance,
                               priced_drafts(inputs), system_of(simulation.link));
  } catch (const std::invalid_argument& error) {  // see gpu_costs()
    throw UsageError(fmt::format("simulation.instance: {} has no costs of the model on {} GPUs: {}",
                                 directory, simulation.instance, error.what()));
  }
}

CostTable of_drafters(const Inputs& inputs, CostTable table, const std::string& source) {
  std::vector<DrafterCosts> drafters;
  for (const ConfiguredDrafter& drafter : inputs.drafters) {
    const auto at =
        std::find_if(table.drafters.begin(), table.drafters.end(),
                     [&](const DrafterCosts& costs) { return costs.name == drafter.name; });
    if (at == table.drafters.end()) {
      throw UsageError(
          fmt::format("{} has no costs of the drafter {}; run `paceline profile` with it", source,
                      drafter.name));
    }
    drafters.push_back(*at);
  }
  table.drafters = std::move(drafters);
  if (!table.transfer) table.transfer = transfers(inputs.config.simulation);
  return table;
}

std::optional<CostTable> costs_by_profile(const Inputs& inputs) {
  const io::RunConfig& config = inputs.config;
  if (config.simulation.gpu_tables) return std::nullopt;
  if (!config.engine.profile) {
    throw UsageError(
        "simulation: no costs are known; set engine.profile (paceline profile) or "
        "simulation.gpu_tables");
  }
  const std::string& path = *config.engine.profile;
  CostTable table = io::parse_cost_profile(io::read_yaml_file(path, "the cost profile"), path);
  require_holds(inputs, table);
  return of_drafters(inputs, std::move(table), "engine.profile: " + path);
}

CostTable costs_by_gpu_tables(const Inputs& inputs, int tp) {
  const std::string& path = *inputs.config.simulation.gpu_tables;
  return of_drafters(inputs, by_gpu_tables(inputs, tp), "simulation.gpu_tables: " + path);
}

}  // namespace paceline::app
