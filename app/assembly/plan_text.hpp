// Texts for the user: the banner and the plan of a run.
#pragma once

#include <string>

#include "app/assembly/plan.hpp"
#include "app/assembly/wall_clock.hpp"

namespace paceline::app {

/// The banner: program, machine, model and prompts.
[[nodiscard]] std::string banner_text(const Inputs& inputs, const Machine& machine, int ranks);
/// The plan: nodes, roles, memory, and how each choice was made.
[[nodiscard]] std::string plan_text(const Inputs& inputs, const Machine& machine, const Plan& plan);
/// The line about the uses of a rank's GPU memory or, in a simulation of CPUs, of its host memory.
[[nodiscard]] std::string memory_use_text(const Machine& machine, const Plan& plan);
/// Lines that may differ each time the same run is started: a shortage of cores, the time limit.
[[nodiscard]] std::string circumstances_text(const Inputs& inputs, const Machine& machine,
                                             const TimeLimit& limit);

}  // namespace paceline::app
