// The weights that each rank has, and the ranks with which it shares a copy (SpecActor, section
// 4.3, "Model scale"; as in the paper, each node's memory keeps all models).
//
// If the backend computes from host memory, ranks of a node with cores in the same NUMA domains
// (policy/place/weight_copies.hpp) share one copy of the weights of their roles. If roles may
// change, the copy includes the weights of all roles that they may get. A rank's own copy of a
// draft model may lend its memory to KV.
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

/// The same on every rank.
struct WeightPlan {
  bool on_device = false;                  ///< ranks load weights into devices, and share none
  std::vector<policy::WeightCopy> copies;  ///< all copies in the job
  std::uint64_t most = 0;  ///< most bytes of a rank; the ranks of a copy count a part each
};

/// Plans weights. Needs the plan's layout, drafters, tail groups and best-of-N.
[[nodiscard]] WeightPlan plan_weights(const Inputs& inputs, const Machine& machine,
                                      const Plan& plan);

/// Bytes of the target's packed weights on a rank of a group of degree `tp`. In a simulation: bytes
/// on all GPUs of the rank, with embeddings and tower.
[[nodiscard]] std::uint64_t target_bytes(const Inputs& inputs, int tp);
/// Bytes of the target's packed tower; 0: no prompt has pictures.
[[nodiscard]] std::uint64_t tower_bytes(const Inputs& inputs);
/// Bytes of the packed weights of a draft model or, if `model` is null, of a head. In a simulation,
/// the target's own next-token layer (MTP) counts as it is stored.
[[nodiscard]] std::uint64_t drafter_bytes(const Inputs& inputs, const ModelCheckpoint* model,
                                          const DraftHead* head);
/// Sum of drafter_bytes() over all configured drafters.
[[nodiscard]] std::uint64_t drafter_bytes(const Inputs& inputs);
/// The fewest ranks that would share a copy in any layout if all ranks needed the same weights.
[[nodiscard]] int weight_sharers(const Machine& machine);

/// The head that `id` names; null: it names no head.
[[nodiscard]] const DraftHead* head_of(const Plan& plan, const policy::WeightsId& id);
/// Whether a rank can lend a copy's memory to KV (speculation.elastic_memory). Only draft models
/// lend. In host memory, the copy must be one rank's own, and roles must not change.
[[nodiscard]] bool lends(const Inputs& inputs, const Plan& plan, const policy::WeightCopy& copy);
/// Bytes of draft models' weights that every verifier can lend to KV when it suspends its drafters.
[[nodiscard]] std::uint64_t weights_to_lend(const Inputs& inputs, const Plan& plan);

}  // namespace paceline::app
