// The weights that ranks compute with: which of them a rank has, with whom in common, and where it
// gets them from when its role changes (SpecActor, section 4.3, "Model scale"; the paper keeps all
// models in each node's memory, and so does this).
//
// Where the backend computes from host memory, ranks of a node whose cores have the same memory
// near them (policy/weight_copies.hpp) map one copy, which they pack together at the start: of what
// they are, and where roles may change, of all that they may become. A device has memory of its
// own, into which a rank loads what its place needs, from files that the node's memory caches.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/fabric/shared_memory.hpp"
#include "runtime/model/weights.hpp"
#include "runtime/policy/weight_copies.hpp"

namespace paceline::app {

struct Setup;

/// Of the whole job, from its layout and the facts of its ranks; the same on every rank.
[[nodiscard]] std::vector<policy::WeightCopy> weight_copies(const Setup& setup);
/// The fewest ranks that would have a copy in common if all needed the same, whatever the layout.
[[nodiscard]] int weight_sharers(const Setup& setup);
/// Bytes that packed weights take of a rank's memory, of a copy in common its part: of the rank
/// that has most.
[[nodiscard]] std::uint64_t weight_memory(const Setup& setup);

/// A rank's weights. Used by one thread; `setup` and the backend outlive it.
class WeightStore {
 public:
  /// `backend`: null on a rank that is never anything but spare. Ranks that cannot map one copy for
  /// some reason get one each, and rank 0 warns. Collective; throws JobEnded.
  WeightStore(const fabric::MpiEnvironment& mpi, const Setup& setup, kernels::Backend* backend);

  /// Those that it keeps, or on a device, loaded anew. Throws as loading them does.
  [[nodiscard]] std::shared_ptr<const model::Weights> get(const policy::WeightsId& id);

  /// Spent in get() so far, on loading.
  [[nodiscard]] double loading_seconds() const { return loading_seconds_; }
  /// Bytes of what it keeps, of copies in common its part.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Bytes of copies in common that are others' part, which the system counts as this rank's too.
  [[nodiscard]] std::uint64_t bytes_of_others() const { return bytes_of_others_; }

 private:
  void share(const fabric::MpiEnvironment& mpi, const std::vector<policy::WeightCopy>& copies);
  [[nodiscard]] std::shared_ptr<const model::Weights> load(
      const policy::WeightsId& id, const model::SharedPacking& shared = {}) const;
  [[nodiscard]] std::size_t packed_bytes(const policy::WeightsId& id) const;

  const Setup& setup_;
  kernels::Backend* backend_;
  std::map<policy::WeightsId, fabric::SharedMemory>
      memory_;  ///< of copies in common; outlives them
  std::map<policy::WeightsId, std::shared_ptr<const model::Weights>> kept_;
  double loading_seconds_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t bytes_of_others_ = 0;
};

}  // namespace paceline::app
