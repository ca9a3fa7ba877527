// The costs of steps, drafts and KV moves on this run's ranks: from the profile, or measured.
#pragma once

#include <map>

#include "app/assembly/compute.hpp"
#include "app/assembly/plan.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/costs/cost_measurement.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/roles/group.hpp"

namespace paceline::app {

/// Objects with which a rank measures costs before its role begins.
struct MeasuringRank {
  const fabric::MpiEnvironment& mpi;
  const Inputs& inputs;
  const Plan& plan;
  Compute& compute;
  roles::KvShare* share;  ///< the rank's share of KV; null: the rank is in no verifier group
  Mailbox& mailbox;
  const Clock& clock;
};

/// Measures costs. All groups measure at the same time, because they also compute at the same time
/// in a run. After that, pairs of groups measure KV transfers. Each group's leader gets the table
/// of its group. In other ranks' tables, only transfers have costs. Collective over all ranks.
[[nodiscard]] CostMeasurement measure(const MeasuringRank& rank, const MeasurementBudget& budget);

/// Whether this run chooses draft lengths or moves of requests by costs.
[[nodiscard]] bool wants_costs(const Inputs& inputs, const Plan& plan);

/// Cost tables of verifier groups, by tensor-parallel degree.
using CostsByDegree = std::map<int, CostTable>;

/// Returns the costs that this rank's policies may read; empty if wants_costs() is false. Costs of
/// the rank's group come from the profile if it applies to this run. Otherwise this call measures
/// them. Tables of the larger groups for the last requests (tail_groups.hpp) are added. If roles
/// change at random, every rank gets the tables of all degrees. `responses`: number of responses
/// still to be generated, the same on every rank; few responses shorten the measuring. Collective.
[[nodiscard]] CostsByDegree costs_of_run(const MeasuringRank& rank, std::size_t responses);

/// The table of degree `tp`, or a table without costs if `costs` has none of this degree.
[[nodiscard]] const CostTable& of_degree(const CostsByDegree& costs, int tp);

}  // namespace paceline::app
