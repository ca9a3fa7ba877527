// From a configuration to a simulated job, as prepare() does for a real one.
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
  std::unique_ptr<sim::StopPoints> stop_points;  ///< trees that heads draft; null: there is no head
  std::map<int, CostTable> costs;                ///< by each degree of groups in the layout
};

/// Reads the configuration, the models' config.json and the costs; makes the workload and plans the
/// layout. Throws as its parts do.
[[nodiscard]] SimulationSetup prepare_simulation(const RunArguments& arguments);

/// Text on the modelled world and the plan, for people.
[[nodiscard]] std::string simulation_text(const Setup& setup);

}  // namespace paceline::app
