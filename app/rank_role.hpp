// This rank's part in a rollout: its role, from weights to summary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "app/job.hpp"
#include "app/setup.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/fabric/ucx_fabric.hpp"

namespace paceline::app {

/// What is to be done this time. The same on every rank.
struct Attempt {
  std::uint32_t number = 0;   ///< of the output directory
  std::size_t responses = 0;  ///< not finished yet
};

/// Builds what the rank's role needs and runs it until the coordinator says that nothing more will
/// come. In start-up ranks fail together; from then on each works on its own and reports a fault to
/// the desk. Returns what became of the tokens that its own drafters proposed: [setup.drafters].
/// Collective; throws JobEnded.
[[nodiscard]] std::vector<DraftTally> run_role(const fabric::MpiEnvironment& mpi,
                                               const Setup& setup, const Attempt& attempt,
                                               const Clock& clock, fabric::UcxFabric& network,
                                               FaultDesk& faults);

}  // namespace paceline::app
