// What a run is about to do, as its user sees it: banner and plan.
#pragma once

#include <string>

#include "app/assembly/setup.hpp"
#include "app/assembly/wall_clock.hpp"

namespace paceline::app {

/// Program, machine, model and prompts.
[[nodiscard]] std::string banner_text(const Setup& setup, int ranks);
/// Nodes, roles, memory, and how each choice was made.
[[nodiscard]] std::string plan_text(const Setup& setup);
/// What a rank's memory goes to, in a line: a device's, or that of a host which is modelled.
[[nodiscard]] std::string memory_use_text(const Setup& setup);
/// What only the moment tells: threads against cores, and the time limit.
[[nodiscard]] std::string circumstances_text(const Setup& setup, const TimeLimit& limit);

void print_banner(const Setup& setup, int ranks);
void print_plan(const Setup& setup, const TimeLimit& limit);

}  // namespace paceline::app
