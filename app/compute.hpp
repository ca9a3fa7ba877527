// What a rank computes with: backend, engine and drafters, made from the setup.
#pragma once

#include <memory>
#include <vector>

#include "app/communicator.hpp"
#include "app/setup.hpp"
#include "runtime/core/thread_pool.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/fabric/make_group.hpp"
#include "runtime/fabric/mpi_group.hpp"

namespace paceline::app {

/// A spare rank has none of this, a member of a group no drafters, a drafter rank no engine.
struct Compute {
  std::unique_ptr<kernels::Backend> backend;
  fabric::MadeGroup made{std::make_unique<fabric::SingleRankGroup>(), ""};
  std::unique_ptr<engine::Executor> executor;
  fabric::SingleRankGroup alone;                          ///< draft models are not sharded
  std::unique_ptr<ThreadPool> draft_threads;              ///< the backend's sleep meanwhile
  std::vector<std::unique_ptr<draft::Drafter>> drafters;  ///< this rank's own
};

[[nodiscard]] engine::ExecutorLimits executor_limits(const Setup& setup);

/// Collective over `members`, the ranks of this one's group, and with `mpi`; throws JobEnded.
[[nodiscard]] std::unique_ptr<Compute> make_compute(const fabric::MpiEnvironment& mpi,
                                                    const Setup& setup,
                                                    const Communicator& members);

}  // namespace paceline::app
