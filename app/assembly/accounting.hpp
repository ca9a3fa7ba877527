// The account of a run's work and time, printed on stderr when the run ends or stops.
#pragma once

#include <span>

#include "app/assembly/plan.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/roles/coordinator.hpp"

namespace paceline::app {

/// Prints a table for each role that some rank had last, with the minimum, average and maximum of
/// each quantity over these ranks. Then prints totals and the largest loss of time. `seconds`: time
/// since the run's start or last resume. `resident`: the job serves many training steps.
void print_accounting(const Inputs& inputs, const Plan& plan,
                      std::span<const RankSummary> summaries, const roles::Progress& progress,
                      double seconds, bool resident);

}  // namespace paceline::app
