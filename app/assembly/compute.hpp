// The objects with which a rank computes: backend, weights, executor and drafters.
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
  // These members stay when the rank's role changes. A spare rank has no backend if roles cannot
  // change during the run.
  int threads = 1;
  std::unique_ptr<kernels::Backend> backend;
  fabric::SingleRankGroup alone;              ///< a group of one, for models that are not sharded
  std::map<int, fabric::MadeGroup> groups;    ///< larger groups that the rank can be in, by degree
  std::unique_ptr<ThreadPool> draft_threads;  ///< drafters' threads; null until the rank may draft
  std::unique_ptr<WeightStore> weights;

  // take_place() makes these members for the rank's role. Each rank of a verifier group has an
  // executor. Only leaders of groups and drafter ranks can have drafters.
  std::unique_ptr<engine::Executor> executor;
  /// The rank's own drafters, by their indices in plan.drafters.
  std::map<std::int32_t, std::unique_ptr<draft::Drafter>> drafters;
};

[[nodiscard]] engine::ExecutorLimits executor_limits(const Inputs& inputs, const Plan& plan);

/// Makes the objects that the rank needs for its role in the layout, and the tensor-parallel groups
/// to which it can belong: its group in the layout, and larger groups that can form for the last
/// requests. If roles change at random (test.shuffle), the rank also gets a group of each degree
/// in the layout, if the job has ranks enough to fill it. Collective; throws JobEnded.
[[nodiscard]] std::unique_ptr<Compute> make_compute(const fabric::MpiEnvironment& mpi,
                                                    const Inputs& inputs, const Machine& machine,
                                                    const Plan& plan);

/// The rank's tensor-parallel group of degree `tp`, which make_compute() must have made.
[[nodiscard]] TensorParallelGroup& group_of(Compute& compute, int tp);

/// Replaces the rank's executor and drafters by the ones that its role in `placement` needs, and
/// loads missing weights. Not collective. Throws as the constructors and the loading do.
void take_place(Compute& compute, const Inputs& inputs, const Plan& plan,
                const policy::Placement& placement, int rank);

}  // namespace paceline::app
