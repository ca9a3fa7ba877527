// This rank's part in a rollout, from loading weights to the last rewards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "app/assembly/job.hpp"
#include "app/assembly/plan.hpp"
#include "app/assembly/scoring.hpp"
#include "app/terminal/standing.hpp"
#include "io/run/run_directory.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/fabric/ucx_fabric.hpp"

namespace paceline::app {

/// The work of one attempt. A run has one attempt, and another one each time it is resumed.
struct Attempt {
  std::uint32_t number = 0;    ///< number of the attempt in the output directory
  std::size_t responses = 0;   ///< number of responses still to be generated
  io::Unscored unscored;       ///< responses of earlier attempts for this rank to score
  std::function<bool()> stop;  ///< if true on any rank, all ranks stop waiting for rewards
};

struct RankReport {
  std::vector<DraftTally> drafts;  ///< RankLife::drafts()
  ScoringReport scoring;
};

/// Makes the weights, engine and files of the rank, and runs the rank's roles until the coordinator
/// ends the run. Then waits for missing rewards. If a rank fails while it makes these objects, all
/// ranks throw JobEnded. A rank that fails later reports its fault to `faults`. Collective.
[[nodiscard]] RankReport run_role(const fabric::MpiEnvironment& mpi, const Inputs& inputs,
                                  const Machine& machine, const Plan& plan, const Attempt& attempt,
                                  Standing& standing, const Clock& clock,
                                  fabric::UcxFabric& network, FaultDesk& faults);

}  // namespace paceline::app
