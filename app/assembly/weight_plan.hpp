// Plans which weights each rank has, and which ranks share one copy of them.
//
// If the backend computes from host memory, a rank has from the start the weights of all roles that
// it may get, as in SpecActor (section 4.3, "Model scale"). Ranks whose cores are in the same NUMA
// domains share one copy of the weights that they all need (policy/place/weight_copies.hpp). A
// copy of a draft model that only one rank uses may lend its memory to KV.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/policy/place/weight_copies.hpp"

namespace paceline::app {

struct DraftHead;
struct Inputs;
struct Machine;
struct ModelCheckpoint;
struct Plan;

/// The plan of all ranks' weights, the same on every rank.
struct WeightPlan {
  bool on_device = false;                  ///< ranks load weights into devices, and share none
  std::vector<policy::WeightCopy> copies;  ///< all copies in the job
  std::uint64_t most = 0;  ///< bytes on the rank with most weights; a shared copy is divided evenly
};

/// Plans weights. Needs the plan's layout, drafters, tail groups and best-of-N.
[[nodiscard]] WeightPlan plan_weights(const Inputs& inputs, const Machine& machine,
                                      const Plan& plan);

/// Bytes of the target's packed weights on a rank of a group of degree `tp`, without embeddings and
/// vision tower. In a simulation with Inputs::priced: bytes of the priced model's stored weights on
/// all GPUs of the rank, with embeddings and vision tower.
[[nodiscard]] std::uint64_t target_bytes(const Inputs& inputs, int tp);
/// Bytes of the target's packed vision tower; 0: no prompt has pictures.
[[nodiscard]] std::uint64_t tower_bytes(const Inputs& inputs);
/// Bytes of the packed weights of a draft model or, if `model` is null, of a head; 0 if both are
/// null. In a simulation with Inputs::priced, elements of an MTP layer have the size of the priced
/// model's stored weights, not of the dtype of computation.
[[nodiscard]] std::uint64_t drafter_bytes(const Inputs& inputs, const ModelCheckpoint* model,
                                          const DraftHead* head);
/// Sum of drafter_bytes() over all configured drafters.
[[nodiscard]] std::uint64_t drafter_bytes(const Inputs& inputs);
/// Number of ranks that can share one copy: the least over all sets of NUMA domains.
[[nodiscard]] int weight_sharers(const Machine& machine);

/// The head that `id` names; null: `id` names other weights.
[[nodiscard]] const DraftHead* head_of(const Plan& plan, const policy::WeightsId& id);
/// Whether a rank can lend the memory of a copy to KV (speculation.elastic_memory). Only draft
/// models can be lent. In host memory, the copy must belong to one rank, and roles must not change.
[[nodiscard]] bool lends(const Inputs& inputs, const Plan& plan, const policy::WeightCopy& copy);
/// Bytes of draft models' weights that each verifier can lend to KV: the least of all verifiers.
[[nodiscard]] std::uint64_t weights_to_lend(const Inputs& inputs, const Plan& plan);

}  // namespace paceline::app
