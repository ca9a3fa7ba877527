// What steps and drafts of a simulated job cost.
#pragma once

#include <optional>

#include "app/assembly/setup.hpp"

namespace paceline::app {

/// By engine.profile, for the degree that it has; nullopt: by simulation.gpu_tables, where both are
/// set too. With the drafters of the setup alone. Throws UsageError where there is neither, and
/// where the profile was measured with another model than the setup's, or with what the
/// configuration says otherwise, or does not know a drafter.
[[nodiscard]] std::optional<CostTable> costs_by_profile(const Setup& setup);

/// By simulation.gpu_tables, for the degree of the setup's layout. Throws UsageError where the
/// tables do not know it.
[[nodiscard]] CostTable costs_by_gpu_tables(const Setup& setup);

/// The same as if all work were shared out evenly among so many ranks: for groups of several
/// degrees, of which one was measured.
[[nodiscard]] CostTable of_another_degree(CostTable costs, int tp);

}  // namespace paceline::app
