#include "app/simulated_costs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "io/config/cost_profile.hpp"
#include "io/config/yaml_tree.hpp"
#include "runtime/core/error.hpp"

namespace paceline::app {
namespace {

/// Between groups, which mostly are on different nodes where there are several.
TransferCosts transfers(const io::SimulationSection& simulation) {
  const io::SimulatedLinks& link = simulation.link;
  return simulation.nodes > 1 ? TransferCosts{link.network_latency, link.network_bandwidth}
                              : TransferCosts{link.node_latency, link.node_bandwidth};
}

CostCurve scaled(const CostCurve& curve, double factor) {
  std::vector<CostCurve::Point> points = curve.points();
  for (CostCurve::Point& point : points) point.seconds *= factor;
  return CostCurve(std::move(points), curve.per_position() * factor);
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

CostTable simulated_costs(const Setup& setup) {
  const io::RunConfig& config = setup.config;
  if (!config.engine.profile)
    throw UsageError(
        "simulation: no costs to go by; set engine.profile (paceline profile) or "
        "simulation.gpu_tables");
  const std::string& path = *config.engine.profile;
  CostTable table = io::parse_cost_profile(io::read_yaml_file(path, "the cost profile"), path);
  std::vector<DrafterCosts> drafters;
  for (const ConfiguredDrafter& drafter : setup.drafters) {
    const auto at =
        std::find_if(table.drafters.begin(), table.drafters.end(),
                     [&](const DrafterCosts& costs) { return costs.name == drafter.name; });
    if (at == table.drafters.end()) {
      throw UsageError(
          fmt::format("engine.profile: {} knows no drafter {}; run `paceline profile` with it",
                      path, drafter.name));
    }
    drafters.push_back(*at);
  }
  table.drafters = std::move(drafters);
  if (!table.transfer) table.transfer = transfers(config.simulation);
  return table;
}

}  // namespace paceline::app
