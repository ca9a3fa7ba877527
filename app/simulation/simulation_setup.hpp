// From a configuration to a simulated job: what prepare() is for a real one.
#pragma once

#include <map>
#include <memory>

#include "app/assembly/setup.hpp"
#include "app/commands/commands.hpp"
#include "runtime/sim/responses.hpp"
#include "runtime/sim/stop_points.hpp"
#include "runtime/sim/workload.hpp"

namespace paceline::app {

/// A job that is to be simulated. The setup has no weights, tokenizer or memory plan; its profile
/// holds by definition, and its prompts are the workload's.
struct SimulationSetup {
  Setup setup;
  std::unique_ptr<sim::Workload> workload;
  std::unique_ptr<sim::Responses> responses;
  std::unique_ptr<sim::StopPoints> stop_points;  ///< what heads draft; null: there is none
  std::map<int, CostTable> costs;  ///< by degree of groups, of all that the layout has
};

/// Reads the configuration, the models' config.json and the costs; makes the workload and plans the
/// layout. Throws as these do.
[[nodiscard]] SimulationSetup prepare_simulation(const RunArguments& arguments);

/// What is modelled, and the plan, for people.
[[nodiscard]] std::string simulation_text(const Setup& setup);

}  // namespace paceline::app
