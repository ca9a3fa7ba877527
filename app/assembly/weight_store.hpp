// The weights that ranks compute with: which of them a rank has, with whom in common, and where it
// gets them from when its role changes (SpecActor, section 4.3, "Model scale"; the paper keeps all
// models in each node's memory, and so does this).
//
// Where the backend computes from host memory, ranks of a node whose cores have the same memory
// near them (policy/place/weight_copies.hpp) map one copy, which they pack together at the start:
// of what they are, and where roles may change, of all that they may become. A device has memory of
// its own, into which a rank loads what its place needs, from files that the node's memory caches.
// So does a rank its own copy of a draft model that may give its memory to KV: the store gives that
// away, and loads it anew when it is wanted again.
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

/// In which most of a model's weights are stored; what config.json says where `weights` is null.
[[nodiscard]] DType stored_dtype(const ModelConfig& config, const io::Checkpoint* weights);

/// Bytes of the target's weights that a rank of a group of that degree has, packed; in a simulation
/// all GPUs that the rank stands for, embeddings included.
[[nodiscard]] std::uint64_t target_bytes(const Setup& setup, int tp);

/// Of the whole job, from its layout and the facts of its ranks; the same on every rank.
[[nodiscard]] std::vector<policy::WeightCopy> weight_copies(const Setup& setup);
/// The fewest ranks that would have a copy in common if all needed the same, whatever the layout.
[[nodiscard]] int weight_sharers(const Setup& setup);
/// Bytes that packed weights take of a rank's memory, of a copy in common its part: of the rank
/// that has most.
[[nodiscard]] std::uint64_t weight_memory(const Setup& setup);
/// Bytes of draft models' weights that every verifier gets back when it suspends its drafters:
/// those that are in memory of its own, and that it will not need in another role.
[[nodiscard]] std::uint64_t weights_to_lend(const Setup& setup);

/// A rank's weights. Used by one thread; `setup` and the backend outlive it.
class WeightStore {
 public:
  /// `backend`: null on a rank that is never anything but spare. Ranks that cannot map one copy for
  /// some reason get one each, and rank 0 warns. Collective; throws JobEnded.
  WeightStore(const fabric::MpiEnvironment& mpi, const Setup& setup, kernels::Backend* backend);

  /// Those that it keeps; others are loaded anew. Throws as loading them does.
  [[nodiscard]] std::shared_ptr<const model::Weights> get(const policy::WeightsId& id);
  /// The same, a part of the loading with each call; null until all are there.
  [[nodiscard]] std::shared_ptr<const model::Weights> get_part(const policy::WeightsId& id);
  /// Of a head, as get().
  [[nodiscard]] std::shared_ptr<const model::Eagle3Weights> get_head(const policy::WeightsId& id);
  /// What was loaded of weights in part is not wanted any more.
  void drop_parts() { loading_.clear(); }

  /// Runs what loads weights, be they kept here or elsewhere, and counts its seconds.
  template <class Load>
  auto timed(const Load& load) {
    const Stopwatch watch(loading_seconds_);
    return load();
  }
  /// Spent on loading so far, without waiting for other ranks.
  [[nodiscard]] double loading_seconds() const { return loading_seconds_; }
  /// Bytes of what it keeps, of copies in common its part.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Bytes of copies in common that are others' part, which the system counts as this rank's too.
  [[nodiscard]] std::uint64_t bytes_of_others() const { return bytes_of_others_; }

 private:
  /// One of the two.
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
      memory_;  ///< of copies in common; outlives them
  std::map<policy::WeightsId, Kept> kept_;
  std::set<policy::WeightsId> lent_;  ///< kept until they are first wanted, and not again
  std::map<policy::WeightsId, model::WeightLoading> loading_;  ///< begun, by get_part()
  double loading_seconds_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t bytes_of_others_ = 0;
};

}  // namespace paceline::app
