// The weights that ranks compute with: which weights a rank has, with whom it shares a copy, and
// where new ones come from when its role changes (SpecActor, section 4.3, "Model scale"; as in the
// paper, each node's memory keeps all models).
//
// Where the backend computes from host memory, ranks of a node whose cores have the same memory
// near them (policy/place/weight_copies.hpp) map one copy, which they pack together at the start:
// the weights of their roles and, where roles may change, of every role that they may get. On a
// device, a rank loads the weights of its place into the device's memory, from files that the
// node's memory caches. A rank's own copy of a draft model may lend its memory to KV: the store
// gives the copy away, and loads it anew from file when it is wanted again.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "kernels/backend.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/stopwatch.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/fabric/shared_memory.hpp"
#include "runtime/model/eagle3_head.hpp"
#include "runtime/model/weights.hpp"
#include "runtime/policy/place/weight_copies.hpp"

namespace paceline::app {

struct Setup;

/// The dtype in which most of a model's weights are stored; config.json's where `weights` is null.
[[nodiscard]] DType stored_dtype(const ModelConfig& config, const io::Checkpoint* weights);

/// Bytes of the target's packed weights on a rank of a group of degree `tp`; in a simulation, on
/// all GPUs that the rank stands for, embeddings included.
[[nodiscard]] std::uint64_t target_bytes(const Setup& setup, int tp);

/// Copies of weights in the whole job, from its layout and the facts of its ranks; the same on
/// every rank.
[[nodiscard]] std::vector<policy::WeightCopy> weight_copies(const Setup& setup);
/// The fewest ranks that would share a copy if all needed the same weights, whatever the layout.
[[nodiscard]] int weight_sharers(const Setup& setup);
/// Bytes of packed weights on the rank that has most; of a shared copy, each rank counts its part.
[[nodiscard]] std::uint64_t weight_memory(const Setup& setup);
/// Bytes of draft models' weights that any verifier can lend to KV when it suspends its drafters:
/// copies in memory of its own that it will not need in another role.
[[nodiscard]] std::uint64_t weights_to_lend(const Setup& setup);

/// A rank's weights. Used by one thread; `setup` and the backend outlive it.
class WeightStore {
 public:
  /// `backend`: null on a rank that is always spare. Where any rank cannot map a shared copy, each
  /// gets its own, and that rank warns. Collective; throws JobEnded.
  WeightStore(const fabric::MpiEnvironment& mpi, const Setup& setup, kernels::Backend* backend);

  /// The weights `id`, kept or else loaded anew. Throws as loading does.
  [[nodiscard]] std::shared_ptr<const model::Weights> get(const policy::WeightsId& id);
  /// Gets weights bit by bit: each call loads a part, and returns null until all are there.
  [[nodiscard]] std::shared_ptr<const model::Weights> get_part(const policy::WeightsId& id);
  /// The weights of a head, otherwise as get().
  [[nodiscard]] std::shared_ptr<const model::Eagle3Weights> get_head(const policy::WeightsId& id);
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
  /// Bytes of shared copies that are others' part; the system counts them as this rank's too.
  [[nodiscard]] std::uint64_t bytes_of_others() const { return bytes_of_others_; }

 private:
  /// Kept weights: of a model or of a head; the other is null.
  struct Kept {
    std::shared_ptr<const model::Weights> model;
    std::shared_ptr<const model::Eagle3Weights> head;
    [[nodiscard]] std::size_t bytes() const { return model ? model->bytes() : head->bytes(); }
  };
  void share(const fabric::MpiEnvironment& mpi, const std::vector<policy::WeightCopy>& copies);
  [[nodiscard]] Kept load(const policy::WeightsId& id,
                          const model::SharedPacking& shared = {}) const;
  [[nodiscard]] std::size_t packed_bytes(const policy::WeightsId& id) const;

  const Setup& setup_;
  kernels::Backend* backend_;
  std::map<policy::WeightsId, fabric::SharedMemory>
      memory_;  ///< of shared copies, outlives their weights
  std::map<policy::WeightsId, Kept> kept_;
  std::set<policy::WeightsId> lent_;  ///< given away for good when first asked for
  std::map<policy::WeightsId, model::WeightLoading> loading_;  ///< loads that get_part() has begun
  double loading_seconds_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t bytes_of_others_ = 0;
};

}  // namespace paceline::app
