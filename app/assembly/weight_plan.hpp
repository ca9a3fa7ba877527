// The weights that each rank has, and with whom it shares a copy (SpecActor, section 4.3, "Model
// scale"; as in the paper, each node's memory keeps all models).
//
// Where the backend computes from host memory, ranks of a node whose cores have the same memory
// near them (policy/place/weight_copies.hpp) share one copy: of the weights of their roles and,
// where roles may change, of every role that they may get. A rank's own copy of a draft model may
// lend its memory to KV.
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
  std::vector<policy::WeightCopy> copies;  ///< in the whole job
  std::uint64_t most = 0;  ///< bytes on the rank that has most; of a copy, each counts its part
};

/// Plans weights. Needs the plan's layout and drafters.
[[nodiscard]] WeightPlan plan_weights(const Inputs& inputs, const Machine& machine,
                                      const Plan& plan);

/// Bytes of the target's packed weights on a rank of a group of degree `tp`; in a simulation, on
/// all GPUs that the rank stands for, embeddings included.
[[nodiscard]] std::uint64_t target_bytes(const Inputs& inputs, int tp);
/// Bytes of the packed weights of the target's tower, where prompts have pictures; else 0.
[[nodiscard]] std::uint64_t tower_bytes(const Inputs& inputs);
/// Bytes of a draft model's or head's packed weights; of a simulated target's own layers as they
/// are stored.
[[nodiscard]] std::uint64_t drafter_bytes(const Inputs& inputs, const ModelCheckpoint* model,
                                          const DraftHead* head);
/// Of all configured drafters.
[[nodiscard]] std::uint64_t drafter_bytes(const Inputs& inputs);
/// The fewest ranks that would share a copy if all needed the same weights, whatever the layout.
[[nodiscard]] int weight_sharers(const Machine& machine);

/// The head that `id` names; null: it names a model.
[[nodiscard]] const DraftHead* head_of(const Plan& plan, const policy::WeightsId& id);
/// Whether a rank can lend a copy's memory to KV: the copy is of a draft model, its own, and not
/// needed in another role. On a device every copy is its rank's own.
[[nodiscard]] bool lends(const Inputs& inputs, const Plan& plan, const policy::WeightCopy& copy);
/// Bytes of draft models' weights that any verifier can lend to KV when it suspends its drafters.
[[nodiscard]] std::uint64_t weights_to_lend(const Inputs& inputs, const Plan& plan);

}  // namespace paceline::app
