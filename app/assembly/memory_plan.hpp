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

/// Bytes of a rank's memory, by use.
struct MemoryUse {
  std::uint64_t weights = 0;   ///< packed weights, also of draft models and heads
  std::uint64_t logits = 0;    ///< logits, the largest of a step's buffers
  std::uint64_t copies = 0;    ///< on a device: embeddings, a step's other buffers; on a host: 0
  std::uint64_t features = 0;  ///< the target's features, kept in host memory for a head
  std::uint64_t pictures = 0;  ///< rows of pictures, and buffers to compute a picture
  std::uint64_t kv = 0;        ///< KV, also of draft models and heads

  [[nodiscard]] std::uint64_t beside_kv() const {
    return weights + logits + copies + features + pictures;
  }
};

/// The use of a rank's memory, and the sizes of its KV pools.
struct MemoryPlan {
  MemoryUse use;
  policy::KvPlan kv;  ///< the target's KV on each rank of a group
  /// Blocks that a group's pool gains while its draft models are suspended: from their KV, and from
  /// the weights that they can lend.
  std::int32_t kv_gain = 0;
  std::vector<std::int32_t> draft_blocks;  ///< [drafters] KV blocks on a rank with the drafter
  policy::KvPoolPlan kv_pool;
};

/// Bytes that drafters take on a rank. drafter_memory() counts draft models, head_memory() a head.
struct DrafterMemory {
  std::size_t weights = 0;
  std::size_t kv = 0;
};
[[nodiscard]] DrafterMemory drafter_memory(const Inputs& inputs, const Plan& plan, Role role);
/// Bytes that the head takes on a rank of this role; a head is never suspended.
[[nodiscard]] DrafterMemory head_memory(const Inputs& inputs, const Plan& plan, Role role);
/// Bytes of host memory that the target's features take on a rank of this role.
[[nodiscard]] std::uint64_t feature_memory(const Inputs& inputs, const Plan& plan, Role role);
/// About the most bytes of host memory that the texts of lookup drafters (n-grams, suffix trees)
/// take on a rank of this role. Plans do not set this memory aside: it is a bound, and a run that
/// may need less is not to be refused.
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
