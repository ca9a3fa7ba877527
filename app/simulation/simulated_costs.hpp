// The costs of steps and drafts in a simulated job.
#pragma once

#include <optional>

#include "app/assembly/inputs.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/place/placement.hpp"

namespace paceline::app {

/// Costs by engine.profile, for its degree and with the configured drafters alone; nullopt where
/// simulation.gpu_tables is set, which comes first. Throws UsageError where neither is set, and
/// where the profile was measured with another model or under settings that the configuration
/// contradicts, or does not know a drafter.
[[nodiscard]] std::optional<CostTable> costs_by_profile(const Inputs& inputs);

/// Costs by simulation.gpu_tables, for groups of degree `tp`. Throws UsageError where the tables do
/// not know the degree.
[[nodiscard]] CostTable costs_by_gpu_tables(const Inputs& inputs, int tp);

/// Costs at degree `tp`, as if all work of the measured degree were shared out evenly among `tp`
/// ranks: for groups of several degrees, of which one was measured.
[[nodiscard]] CostTable of_another_degree(CostTable costs, int tp);

}  // namespace paceline::app
