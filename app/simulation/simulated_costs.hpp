// The costs of steps and drafts in a simulated job.
#pragma once

#include <optional>

#include "app/assembly/inputs.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/place/placement.hpp"

namespace paceline::app {

/// Costs by engine.profile, for its degree and only with the configured drafters; nullopt:
/// simulation.gpu_tables is set, and is used instead. Throws UsageError if neither is set. Throws
/// UsageError if the profile is of another model, contradicts the configuration or lacks a
/// configured drafter.
[[nodiscard]] std::optional<CostTable> costs_by_profile(const Inputs& inputs);

/// Costs by simulation.gpu_tables, for groups of degree `tp`. Throws UsageError if the tables do
/// not know the degree.
[[nodiscard]] CostTable costs_by_gpu_tables(const Inputs& inputs, int tp);

/// Reduces a table to the configured drafters, in their order. Adds transfer costs of the modelled
/// links if the table has none. Throws UsageError if the table does not know a drafter.
[[nodiscard]] CostTable of_drafters(const Inputs& inputs, CostTable table);

/// Costs at degree `tp`, if all work of the measured degree were divided evenly among `tp` ranks.
/// Used for degrees that were not measured.
[[nodiscard]] CostTable of_another_degree(CostTable costs, int tp);

}  // namespace paceline::app
