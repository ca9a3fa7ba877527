// Memory and disk that a rank gives to the KV pool.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace paceline::policy {

/// Facts of the rank with the least memory.
struct KvPoolFacts {
  std::uint64_t host_memory = 0;  ///< bytes that the plan may use; 0: unknown
  std::uint64_t taken = 0;        ///< bytes of host_memory that weights, KV and the like take
  std::uint64_t block_bytes = 0;  ///< bytes of the rank's share of a KV block
  std::uint64_t most = 0;         ///< bytes of KV of all responses at their longest
};
struct KvPoolSettings {
  std::optional<std::uint64_t> memory;  ///< kv_pool.memory in bytes; 0: no pool
  bool disk = false;                    ///< kv_pool.disk is set
};
struct KvPoolPlan {
  std::uint64_t memory = 0;  ///< bytes of each rank; 0: there is no pool
  std::string explanation;
};

/// Plans the pool. Throws UsageError where kv_pool.memory is too small for one block, or where a
/// disk is set and the pool has no memory.
[[nodiscard]] KvPoolPlan plan_kv_pool(const KvPoolFacts& facts, const KvPoolSettings& settings);

}  // namespace paceline::policy
