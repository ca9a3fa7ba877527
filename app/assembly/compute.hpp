// What a rank computes with: backend, engine and drafters, made from the setup.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "app/assembly/setup.hpp"
#include "app/assembly/weight_store.hpp"
#include "runtime/core/thread_pool.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/fabric/make_group.hpp"
#include "runtime/fabric/mpi_group.hpp"

namespace paceline::app {

struct Compute {
  // For as long as the rank lives; a rank that is never anything but spare has none of it.
  std::unique_ptr<kernels::Backend> backend;
  fabric::SingleRankGroup alone;              ///< draft models are not sharded
  std::map<int, fabric::MadeGroup> groups;    ///< that the rank may be in, by their degree
  std::unique_ptr<ThreadPool> draft_threads;  ///< the backend's sleep meanwhile
  std::unique_ptr<WeightStore> weights;

  // For its place: a member of a group has no drafters, a drafter rank no engine.
  std::unique_ptr<engine::Executor> executor;
  std::vector<std::unique_ptr<draft::Drafter>> drafters;  ///< this rank's own
};

[[nodiscard]] engine::ExecutorLimits executor_limits(const Setup& setup);

/// With what the rank's place in the layout needs. Where roles change at random, every rank can be
/// in a group of each degree with its neighbours; otherwise in that of the layout alone.
/// Collective; throws JobEnded.
[[nodiscard]] std::unique_ptr<Compute> make_compute(const fabric::MpiEnvironment& mpi,
                                                    const Setup& setup);

/// The group of that degree that the rank may be in.
[[nodiscard]] TensorParallelGroup& group_of(Compute& compute, int tp);

/// Makes what a place needs, in place of what the last one did. Of this rank alone; throws as the
/// things that it makes do.
void take_place(Compute& compute, const Setup& setup, const policy::Placement& placement, int rank);

}  // namespace paceline::app
