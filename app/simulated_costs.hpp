// What steps and drafts of a simulated job cost.
#pragma once

#include "app/setup.hpp"

namespace paceline::app {

/// By engine.profile or simulation.gpu_tables, for the degree that the layout asks for; with the
/// drafters of the setup alone. Throws UsageError where there is neither, or one does not know a
/// drafter or the degree.
[[nodiscard]] CostTable simulated_costs(const Setup& setup);

/// The same as if all work were shared out evenly among so many ranks: for groups of several
/// degrees, of which one was measured.
[[nodiscard]] CostTable of_another_degree(CostTable costs, int tp);

}  // namespace paceline::app
