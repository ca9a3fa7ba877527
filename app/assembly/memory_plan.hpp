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

/// Bytes of a rank's memory, by what takes them.
struct MemoryUse {
  std::uint64_t weights = 0;   ///< packed; includes those of draft models and heads
  std::uint64_t logits = 0;    ///< the largest of a step's buffers
  std::uint64_t copies = 0;    ///< a device alone: embeddings and a step's other buffers
  std::uint64_t features = 0;  ///< the target's, kept in host memory for a head
  std::uint64_t pictures = 0;  ///< their rows that are kept, and what computing one takes
  std::uint64_t kv = 0;        ///< includes that of draft models

  [[nodiscard]] std::uint64_t beside_kv() const {
    return weights + logits + copies + features + pictures;
  }
};

/// The use of a rank's memory, and the sizes of its KV pools.
struct MemoryPlan {
  MemoryUse use;
  policy::KvPlan kv;  ///< of a group's rank
  /// Blocks more in a group's pool while its draft models are suspended: their KV, and the weights
  /// that they can lend.
  std::int32_t kv_gain = 0;
  std::vector<std::int32_t> draft_blocks;  ///< [drafters] KV blocks on each rank that has it
  policy::KvPoolPlan kv_pool;
};

/// Bytes that draft models' weights and KV take on a rank of this role.
struct DrafterMemory {
  std::size_t weights = 0;
  std::size_t kv = 0;
};
[[nodiscard]] DrafterMemory drafter_memory(const Inputs& inputs, const Plan& plan, Role role);
/// Bytes that a head takes on a rank of this role; a head is never suspended.
[[nodiscard]] DrafterMemory head_memory(const Inputs& inputs, const Plan& plan, Role role);
/// Bytes of host memory that the target's features take on a rank of this role.
[[nodiscard]] std::uint64_t feature_memory(const Inputs& inputs, const Plan& plan, Role role);

/// Rows of pictures that a rank keeps; 0 where no prompt has pictures.
[[nodiscard]] std::int64_t kept_picture_rows(const Inputs& inputs);

/// Plans as much KV as there is room for. Needs all else of the plan. Throws UsageError
/// where something does not fit.
[[nodiscard]] MemoryPlan plan_memory(const Inputs& inputs, const Machine& machine,
                                     const Plan& plan);

}  // namespace paceline::app
