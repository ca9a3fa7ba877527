// The costs of steps and drafts in a simulated job.
#pragma once

#include <optional>
#include <string>

#include "app/assembly/inputs.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/sim/gpu_costs.hpp"

namespace paceline::app {

/// The costs of engine.profile, for the tensor-parallel degree at which they were measured, with
/// only the configured drafters. Returns nullopt if simulation.gpu_tables is set, because it takes
/// precedence. Throws as reading the profile does, and UsageError if neither key is set, or if the
/// profile is of another model, contradicts the configuration or lacks a configured drafter.
[[nodiscard]] std::optional<CostTable> costs_by_profile(const Inputs& inputs);

/// The costs of groups of degree `tp`, computed from simulation.gpu_tables. An instance's ranks are
/// taken to have equal work. Throws as reading the tables does, and UsageError if they do not cover
/// this degree, the model or a drafter, or if settings exclude each other.
[[nodiscard]] CostTable costs_by_gpu_tables(const Inputs& inputs, int tp);

/// The costs of an instance, computed from simulation.gpu_tables. An instance is a number of ranks
/// (simulation.instance, above 1) that divide the model's routed experts among themselves. Each has
/// requests of its own. Throws UsageError if the tables have no costs of so many ranks.
[[nodiscard]] sim::InstanceCosts instance_costs(const Inputs& inputs);

/// Keeps only the drafters of `inputs` in a table, in their order. If the table has no transfer
/// costs, adds those of the modelled links. `source`: key and path of the table, for errors. Throws
/// UsageError if the table lacks a drafter.
[[nodiscard]] CostTable of_drafters(const Inputs& inputs, CostTable table,
                                    const std::string& source);

/// Estimates costs at an unmeasured degree `tp`. The time of a step is assumed to be inversely
/// proportional to the degree. Costs of drafters and transfers are unchanged.
[[nodiscard]] CostTable of_another_degree(CostTable costs, int tp);

}  // namespace paceline::app
