// What steps, drafts and moves cost on this run's ranks: by the profile, or measured.
#pragma once

#include <map>

#include "app/assembly/compute.hpp"
#include "app/assembly/setup.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/costs/cost_measurement.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/roles/group.hpp"

namespace paceline::app {

/// What a rank measures with, before it takes its role. All references outlive the measurement.
struct MeasuringRank {
  const fabric::MpiEnvironment& mpi;
  const Setup& setup;
  Compute& compute;
  roles::KvShare* share;  ///< of verifiers and members
  Mailbox& mailbox;
  const Clock& clock;
};

/// All groups measure at once, for in a run they compute at once; each gets its own table, with the
/// conditions of the run. Transfers are measured last, between pairs of groups. Collective over all
/// ranks; other ranks than verifiers get an empty table.
[[nodiscard]] roles::CostMeasurement measure(const MeasuringRank& rank,
                                             const roles::MeasurementBudget& budget);

/// Whether a policy of this run asks for costs.
[[nodiscard]] bool wants_costs(const Setup& setup);

/// Tables of verifier groups, by their degree.
using CostsByDegree = std::map<int, CostTable>;

/// The costs that a verifier's policies go by: the profile's if there is one that holds here, else
/// what a short measurement finds. Where roles may change, every rank has the tables of all
/// degrees. Empty where no policy asks. `responses`: those to generate still, the same number on
/// every rank; measuring takes a share of what they will. Collective over all ranks.
[[nodiscard]] CostsByDegree costs_of_run(const MeasuringRank& rank, std::size_t responses);

/// The table of a degree; an empty one where there is none.
[[nodiscard]] const CostTable& of_degree(const CostsByDegree& costs, int tp);

}  // namespace paceline::app
