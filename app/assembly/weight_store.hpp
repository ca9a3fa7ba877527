// Holds the weights that a rank computes with (planned in weight_plan.hpp), and loads other weights
// when the rank's role changes.
//
// In host memory, each rank that shares a copy maps it, and packs a part of it at the start. A
// draft model that may lend its memory to KV (lends()) leaves the store at the first get(). Then
// the caller alone owns it, and can free its memory. A later get() loads it again. On a device, the
// store keeps no weights: each call loads them into the device's memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/stopwatch.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/fabric/shared_memory.hpp"
#include "runtime/model/head_weights.hpp"
#include "runtime/model/tower.hpp"
#include "runtime/model/weights.hpp"
#include "runtime/policy/place/weight_copies.hpp"

namespace paceline::app {

struct Inputs;
struct Plan;

/// A rank's weights. Used by one thread. References and the backend must outlive this object.
class WeightStore {
 public:
  /// `backend`: null on a rank that is always spare. If a rank cannot map a shared copy, every rank
  /// loads copies of its own, and the user is warned. Collective; throws JobEnded.
  WeightStore(const fabric::MpiEnvironment& mpi, const Inputs& inputs, const Plan& plan,
              kernels::Backend* backend);

  /// Returns the target's share or the draft model that `id` names, and loads it unless this store
  /// keeps it. Throws as loading does.
  [[nodiscard]] std::shared_ptr<const model::Weights> get(const policy::WeightsId& id);
  /// Like get(), but loads at most one part in a call, and returns null until all are loaded.
  [[nodiscard]] std::shared_ptr<const model::Weights> get_part(const policy::WeightsId& id);
  /// Like get(), for a head.
  [[nodiscard]] std::shared_ptr<const model::HeadWeights> get_head(const policy::WeightsId& id);
  /// Returns the weights of the target's vision tower; null: no prompt has pictures.
  [[nodiscard]] std::shared_ptr<const model::TowerWeights> get_tower();
  /// Drops weights that get_part() has loaded in part.
  void drop_parts() { loading_.clear(); }

  /// Runs a function that loads weights, and adds the time to loading_seconds().
  template <class Load>
  auto timed(const Load& load) {
    const Stopwatch watch(loading_seconds_);
    return load();
  }
  /// Seconds spent on loading so far, not counting waits for other ranks.
  [[nodiscard]] double loading_seconds() const { return loading_seconds_; }
  /// Bytes of weights loaded at the start; 0 on a device. Of a shared copy, only this rank's part
  /// counts.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Bytes of other ranks' parts in shared copies. Linux counts them in this rank's RSS too.
  [[nodiscard]] std::uint64_t bytes_of_others() const { return bytes_of_others_; }

 private:
  /// Weights of a model, a head or a vision tower. The two other pointers are null.
  struct Kept {
    std::shared_ptr<const model::Weights> model;
    std::shared_ptr<const model::HeadWeights> head;
    std::shared_ptr<const model::TowerWeights> tower = nullptr;
    [[nodiscard]] std::size_t bytes() const {
      if (tower) return tower->bytes();
      return model ? model->bytes() : head->bytes();
    }
  };
  void share(const fabric::MpiEnvironment& mpi, const std::vector<policy::WeightCopy>& copies);
  [[nodiscard]] Kept load(const policy::WeightsId& id,
                          const model::SharedPacking& shared = {}) const;
  [[nodiscard]] std::size_t packed_bytes(const policy::WeightsId& id) const;

  const Inputs& inputs_;
  const Plan& plan_;
  kernels::Backend* backend_;
  std::map<policy::WeightsId, fabric::SharedMemory>
      memory_;  ///< memory of shared copies; outlives their weights
  std::map<policy::WeightsId, Kept> kept_;
  std::set<policy::WeightsId> lent_;  ///< weights that leave kept_ when they are first returned
  std::map<policy::WeightsId, model::WeightLoading> loading_;  ///< loads that get_part() has begun
  double loading_seconds_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t bytes_of_others_ = 0;
};

}  // namespace paceline::app
