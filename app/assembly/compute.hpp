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
  // Members kept for as long as the rank lives. A rank that is always spare has no backend.
  int threads = 1;
  std::unique_ptr<kernels::Backend> backend;
  fabric::SingleRankGroup alone;              ///< group of every model that is not sharded
  std::map<int, fabric::MadeGroup> groups;    ///< groups that the rank may be in, by degree
  std::unique_ptr<ThreadPool> draft_threads;  ///< for drafters; backend threads sleep meanwhile
  std::unique_ptr<WeightStore> weights;

  // Members made for the rank's place. Ranks that follow a group's leader draft nothing, drafter
  // ranks verify nothing.
  std::unique_ptr<engine::Executor> executor;
  /// The rank's own drafters, by their indices in plan.drafters.
  std::map<std::int32_t, std::unique_ptr<draft::Drafter>> drafters;
};

[[nodiscard]] engine::ExecutorLimits executor_limits(const Inputs& inputs, const Plan& plan);

/// Makes all that the rank's place in the layout needs, and the tensor-parallel groups that it may
/// be in: its group of the layout and larger groups for the last requests. Where roles change at
/// random (test.shuffle), a group of every degree of the layout. Collective; throws JobEnded.
[[nodiscard]] std::unique_ptr<Compute> make_compute(const fabric::MpiEnvironment& mpi,
                                                    const Inputs& inputs, const Machine& machine,
                                                    const Plan& plan);

/// The rank's group of degree `tp`.
[[nodiscard]] TensorParallelGroup& group_of(Compute& compute, int tp);

/// Replaces the executor and drafters of the rank's last place by those of its new place. Not
/// collective; throws as their constructors do.
void take_place(Compute& compute, const Inputs& inputs, const Plan& plan,
                const policy::Placement& placement, int rank);

}  // namespace paceline::app
