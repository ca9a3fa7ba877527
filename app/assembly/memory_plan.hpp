// The plan of a rank's memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/core/role.hpp"

namespace paceline::app {

struct Setup;

/// Bytes of a rank's memory, by what takes them.
struct MemoryPlan {
  std::uint64_t weights = 0;   ///< packed; includes those of draft models and heads
  std::uint64_t logits = 0;    ///< the largest of a step's buffers
  std::uint64_t copies = 0;    ///< a device alone: embeddings and a step's other buffers
  std::uint64_t features = 0;  ///< the target's, kept in host memory for a head
  std::uint64_t kv = 0;        ///< includes that of draft models

  [[nodiscard]] std::uint64_t beside_kv() const { return weights + logits + copies + features; }
};

/// Bytes that draft models' weights and KV take on a rank of this role.
struct DrafterMemory {
  std::size_t weights = 0;
  std::size_t kv = 0;
};
[[nodiscard]] DrafterMemory drafter_memory(const Setup& setup, Role role);
/// Bytes that a head takes on a rank of this role; a head is never suspended.
[[nodiscard]] DrafterMemory head_memory(const Setup& setup, Role role);
/// Bytes of host memory that the target's features take on a rank of this role.
[[nodiscard]] std::uint64_t feature_memory(const Setup& setup, Role role);

/// Sets setup.memory, kv, kv_gain and kv_pool, and the draft models' KV blocks, to what there is
/// room for. Needs the layout and the longest sequence. Throws UsageError where something does not
/// fit.
void plan_memory(Setup& setup);

}  // namespace paceline::app
