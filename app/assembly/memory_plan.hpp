// The plan of a rank's memory. A head is a draft head on the target (EAGLE-3, DFlash or MTP), and
// features are the target's hidden states that a head reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/core/role.hpp"
#include "runtime/policy/place/kv_pool_plan.hpp"
#include "runtime/policy/place/layout.hpp"

namespace paceline::app {

struct Inputs;
struct Machine;
struct Plan;

/// Bytes of a verifier's memory, by use. On a device, `device_buffers` includes drafters' logits.
struct MemoryUse {
  std::uint64_t weights = 0;         ///< all packed weights, on the rank that has the most
  std::uint64_t logits = 0;          ///< logits of the target and, on a real host, of a head
  std::uint64_t device_buffers = 0;  ///< embeddings and other buffers; 0 on a host
  std::uint64_t features = 0;        ///< features kept for the head, always in host memory
  std::uint64_t pictures = 0;        ///< output rows and buffers of the vision tower
  std::uint64_t kv = 0;              ///< KV of the target and of the verifier's own drafters

  [[nodiscard]] std::uint64_t beside_kv() const {
    return weights + logits + device_buffers + features + pictures;
  }
};

/// A rank's memory: its uses, its KV blocks, and its part of the KV pool.
struct MemoryPlan {
  MemoryUse use;
  policy::KvPlan kv;  ///< the target's KV on each rank of a group
  /// KV blocks that a group gains while its draft models lend the memory of their KV, and of the
  /// weights for which lends() is true (speculation.elastic_memory); 0: they lend none.
  std::int32_t kv_gain = 0;
  std::vector<std::int32_t> draft_blocks;  ///< [drafters] KV blocks on each rank with the drafter
  policy::KvPoolPlan kv_pool;              ///< host memory for KV of requests that wait
};

/// Bytes that drafters take on a rank.
struct DrafterMemory {
  std::size_t weights = 0;
  std::size_t kv = 0;
};
/// Bytes that the draft models take on a rank of this role.
[[nodiscard]] DrafterMemory draft_model_memory(const Inputs& inputs, const Plan& plan, Role role);
/// Bytes that the head takes on a rank of this role. A head never lends its memory to KV.
[[nodiscard]] DrafterMemory head_memory(const Inputs& inputs, const Plan& plan, Role role);
/// Bytes of host memory that features take on a rank of this role.
[[nodiscard]] std::uint64_t feature_memory(const Inputs& inputs, const Plan& plan, Role role);
/// Estimates how many bytes of host memory the texts of lookup drafters (n-grams, suffix trees)
/// take at most on a rank of this role. Most runs need less, so plans do not reserve this memory.
[[nodiscard]] std::uint64_t text_memory(const Inputs& inputs, const Plan& plan, Role role);
/// Estimates how many bytes a draft server takes at most for its responses; 0: no servers.
[[nodiscard]] std::uint64_t log_memory(const Inputs& inputs, const Plan& plan);

/// Limit on the rows of the vision tower's output that a rank keeps; 0: no prompt has pictures.
[[nodiscard]] std::int64_t kept_picture_rows(const Inputs& inputs);

/// Plans a rank's memory. KV gets at most what other uses leave. Needs all fields of `plan` except
/// `memory` and `leases`. Throws UsageError if something does not fit.
[[nodiscard]] MemoryPlan plan_memory(const Inputs& inputs, const Machine& machine,
                                     const Plan& plan);

}  // namespace paceline::app
