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

/// Parts of a rank that measure costs before its role begins. References outlive the measurement.
struct MeasuringRank {
  const fabric::MpiEnvironment& mpi;
  const Inputs& inputs;
  const Plan& plan;
  Compute& compute;
  roles::KvShare* share;  ///< null on ranks in no verifier group
  Mailbox& mailbox;
  const Clock& clock;
};

/// Measures on all groups at the same time, as in a run. Each group gets its own table, with the
/// conditions of the run. KV transfers are measured last, between pairs of groups.
/// Collective over all ranks; only verifiers get steps and drafts in their table.
[[nodiscard]] CostMeasurement measure(const MeasuringRank& rank, const MeasurementBudget& budget);

/// Whether a policy of this run asks for costs.
[[nodiscard]] bool wants_costs(const Inputs& inputs, const Plan& plan);

/// Tables of verifier groups, by their degree.
using CostsByDegree = std::map<int, CostTable>;

/// The costs for a verifier's policies: the profile's if it holds here, else costs measured in a
/// short time. The tables of tail groups are always added. Where roles change at random, every rank
/// has the tables of all degrees. Empty if no policy asks for costs. `responses`: number left to
/// generate, the same on every rank; the time for measuring is a share of the time expected for
/// them. Collective over all ranks.
[[nodiscard]] CostsByDegree costs_of_run(const MeasuringRank& rank, std::size_t responses);

/// The table of a degree, or an empty table.
[[nodiscard]] const CostTable& of_degree(const CostsByDegree& costs, int tp);

}  // namespace paceline::app
