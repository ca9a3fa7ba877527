// Makes a simulated job from a configuration, as inputs.hpp and plan.hpp do for a real job.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "app/assembly/plan.hpp"
#include "app/commands/commands.hpp"
#include "runtime/sim/gpu_costs.hpp"
#include "runtime/sim/responses.hpp"
#include "runtime/sim/stop_points.hpp"
#include "runtime/sim/workload.hpp"

namespace paceline::app {

/// A job to be simulated. It has no weights, and its prompts come from the workload. Its costs are
/// assumed to be those of the modelled machine.
struct SimulationSetup {
  Inputs inputs;
  Machine machine;  ///< the modelled machine
  Plan plan;
  std::unique_ptr<sim::Workload> workload;
  std::unique_ptr<sim::Responses> responses;
  std::unique_ptr<sim::StopPoints> stop_points;  ///< recorded draft trees; null: no head
  std::map<int, CostTable> costs;                ///< costs by tensor-parallel degree of groups
  std::optional<sim::InstanceCosts> instance;    ///< set if simulation.instance is above 1
};

/// Reads the models' config.json and the costs, makes the workload and plans the job. Throws as
/// these steps do, and UsageError if a setting is not modelled.
[[nodiscard]] SimulationSetup prepare_simulation(io::RunConfig config);

/// Text for the user about the modelled machine and the plan.
[[nodiscard]] std::string simulation_text(const SimulationSetup& setup);

}  // namespace paceline::app
