// The plan of a rank's memory.
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

/// Bytes of a rank's memory, by use. On a device, logits of drafters count in `device_buffers`.
struct MemoryUse {
  std::uint64_t weights = 0;         ///< packed weights, also of draft models and heads
  std::uint64_t logits = 0;          ///< the target's logits; a head's too on a host
  std::uint64_t device_buffers = 0;  ///< on a device: embeddings, other buffers; on a host: 0
  std::uint64_t features = 0;        ///< the target's features, kept in host memory for a head
  std::uint64_t pictures = 0;        ///< rows of pictures, and the buffers of the vision tower
  std::uint64_t kv = 0;              ///< KV, also of draft models and heads

  [[nodiscard]] std::uint64_t beside_kv() const {
    return weights + logits + device_buffers + features + pictures;
  }
};

/// How a rank's memory is used, how many KV blocks it has, and the size of its KV pool.
struct MemoryPlan {
  MemoryUse use;
  policy::KvPlan kv;  ///< the target's KV on each rank of a group
  /// KV blocks that a group gains while its draft models are suspended. The memory is that of the
  /// draft models' KV and of the weights that they can lend (lends()).
  std::int32_t kv_gain = 0;
  std::vector<std::int32_t> draft_blocks;  ///< [drafters] KV blocks on a rank with the drafter
  policy::KvPoolPlan kv_pool;              ///< memory for KV of requests that wait
};

/// Bytes that drafters take on a rank.
struct DrafterMemory {
  std::size_t weights = 0;
  std::size_t kv = 0;
};
/// Bytes that the draft models take on a rank of this role.
[[nodiscard]] DrafterMemory draft_model_memory(const Inputs& inputs, const Plan& plan, Role role);
/// Bytes that the head takes on a rank of this role; a head is never suspended.
[[nodiscard]] DrafterMemory head_memory(const Inputs& inputs, const Plan& plan, Role role);
/// Bytes of host memory that the target's features take on a rank of this role.
[[nodiscard]] std::uint64_t feature_memory(const Inputs& inputs, const Plan& plan, Role role);
/// Estimates the most host memory, in bytes, for the texts of lookup drafters (n-grams, suffix
/// trees) on a rank of this role. Plans do not set this memory aside, because most runs need less.
[[nodiscard]] std::uint64_t text_memory(const Inputs& inputs, const Plan& plan, Role role);
/// Most bytes of host memory that the log of a draft server takes; 0: there are no servers.
[[nodiscard]] std::uint64_t log_memory(const Inputs& inputs, const Plan& plan);

/// Number of picture rows that a rank keeps; 0: no prompt has pictures.
[[nodiscard]] std::int64_t kept_picture_rows(const Inputs& inputs);

/// Plans KV in all memory that is left. Needs all other fields of the plan except `leases`. Throws
/// UsageError if something does not fit.
[[nodiscard]] MemoryPlan plan_memory(const Inputs& inputs, const Machine& machine,
                                     const Plan& plan);

}  // namespace paceline::app
