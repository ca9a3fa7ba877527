// Makes a simulated job from a configuration, as inputs.hpp and plan.hpp make a real one.
#pragma once

#include <map>
#include <memory>

#include "app/assembly/plan.hpp"
#include "app/commands/commands.hpp"
#include "runtime/sim/responses.hpp"
#include "runtime/sim/stop_points.hpp"
#include "runtime/sim/workload.hpp"

namespace paceline::app {

/// A job to be simulated. It has no weights. Its profile always holds, and its prompts are the
/// workload's.
struct SimulationSetup {
  Inputs inputs;
  Machine machine;  ///< the modelled machine
  Plan plan;
  std::unique_ptr<sim::Workload> workload;
  std::unique_ptr<sim::Responses> responses;
  std::unique_ptr<sim::StopPoints> stop_points;  ///< trees drafted by heads; null: there is no head
  std::map<int, CostTable> costs;                ///< cost table for each degree of groups
};

/// Reads the models' config.json and the costs, makes the workload and plans the job. Throws as its
/// parts do.
[[nodiscard]] SimulationSetup prepare_simulation(io::RunConfig config);

/// Text for people about the modelled world and the plan.
[[nodiscard]] std::string simulation_text(const SimulationSetup& setup);

}  // namespace paceline::app
