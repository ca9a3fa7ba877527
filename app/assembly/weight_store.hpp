// The weights that a rank computes with, as planned (weight_plan.hpp), and the source of new ones
// when its role changes.
//
// Ranks that share a copy map it, and pack it together at the start. On a device, a rank loads the
// weights of its place into the device's memory, from files that the node caches. A copy that lends
// its memory to KV is given away, and loaded anew from its file when it is needed again.
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

/// A rank's weights. Used by one thread; references and the backend outlive it.
class WeightStore {
 public:
  /// `backend`: null on a rank that is always spare. If any rank cannot map a shared copy, each
  /// gets its own copies, and that rank warns. Collective; throws JobEnded.
  WeightStore(const fabric::MpiEnvironment& mpi, const Inputs& inputs, const Plan& plan,
              kernels::Backend* backend);

  /// Returns the weights `id`, kept or loaded anew. Throws as loading does.
  [[nodiscard]] std::shared_ptr<const model::Weights> get(const policy::WeightsId& id);
  /// Gets weights piece by piece: each call loads a part; null: not all parts are loaded yet.
  [[nodiscard]] std::shared_ptr<const model::Weights> get_part(const policy::WeightsId& id);
  /// Returns the weights of a head; otherwise as get().
  [[nodiscard]] std::shared_ptr<const model::HeadWeights> get_head(const policy::WeightsId& id);
  /// Returns the weights of the target's tower; null: no prompt has pictures.
  [[nodiscard]] std::shared_ptr<const model::TowerWeights> get_tower();
  /// Drops weights that get_part() has loaded in part.
  void drop_parts() { loading_.clear(); }

  /// Runs a function that loads weights, to be kept here or elsewhere, and counts its seconds.
  template <class Load>
  auto timed(const Load& load) {
    const Stopwatch watch(loading_seconds_);
    return load();
  }
  /// Seconds spent on loading so far, without waiting for other ranks.
  [[nodiscard]] double loading_seconds() const { return loading_seconds_; }
  /// Bytes of the weights kept; of a shared copy, this rank's part.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Bytes of other ranks' parts in shared copies; the system counts them as this rank's too.
  [[nodiscard]] std::uint64_t bytes_of_others() const { return bytes_of_others_; }

 private:
  /// Kept weights of a model, a head or a tower; the other two are null.
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
  std::set<policy::WeightsId> lent_;  ///< kept weights that are given away at first use
  std::map<policy::WeightsId, model::WeightLoading> loading_;  ///< loads that get_part() has begun
  double loading_seconds_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t bytes_of_others_ = 0;
};

}  // namespace paceline::app
