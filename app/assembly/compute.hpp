// The means by which a rank computes: backend, engine and drafters, made for its plan.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "app/assembly/plan.hpp"
#include "app/assembly/weight_store.hpp"
#include "runtime/core/thread_pool.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/fabric/make_group.hpp"
#include "runtime/fabric/mpi_group.hpp"

namespace paceline::app {

struct Compute {
  // Kept for as long as the rank lives. A rank that is always spare has no backend.
  int threads = 1;
  std::unique_ptr<kernels::Backend> backend;
  fabric::SingleRankGroup alone;              ///< draft models are not sharded
  std::map<int, fabric::MadeGroup> groups;    ///< groups that the rank may be in, by degree
  std::unique_ptr<ThreadPool> draft_threads;  ///< for drafters; the backend sleeps meanwhile
  std::unique_ptr<WeightStore> weights;

  // Made for the rank's place: a group's member has no drafters, a drafter rank no engine.
  std::unique_ptr<engine::Executor> executor;
  /// The rank's own drafters, by their indices in plan.drafters.
  std::map<std::int32_t, std::unique_ptr<draft::Drafter>> drafters;
};

[[nodiscard]] engine::ExecutorLimits executor_limits(const Inputs& inputs, const Plan& plan);

/// Makes what the rank's place in the layout needs. Where roles change at random, every rank can be
/// in a group of each degree with its neighbours; otherwise only in its group of the layout.
/// Collective; throws JobEnded.
[[nodiscard]] std::unique_ptr<Compute> make_compute(const fabric::MpiEnvironment& mpi,
                                                    const Inputs& inputs, const Machine& machine,
                                                    const Plan& plan);

/// The rank's group of degree `tp`.
[[nodiscard]] TensorParallelGroup& group_of(Compute& compute, int tp);

/// Replaces the executor and drafters of the last place by those of a new one. Not collective;
/// throws what the making of an executor or a drafter throws.
void take_place(Compute& compute, const Inputs& inputs, const Plan& plan,
                const policy::Placement& placement, int rank);

}  // namespace paceline::app
