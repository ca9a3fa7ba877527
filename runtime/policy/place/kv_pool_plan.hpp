// Memory and disk that a rank gives to the KV pool.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace paceline::policy {

/// Facts of the rank with the least memory.
struct KvPoolFacts {
  std::uint64_t host_memory = 0;  ///< bytes that may be planned with; 0: unknown
  std::uint64_t taken = 0;        ///< bytes of it that weights, KV and the like take
  std::uint64_t block_bytes = 0;  ///< bytes of the rank's share of a KV block
  std::uint64_t most = 0;         ///< bytes of KV that all responses could want
};
struct KvPoolSettings {
  std::optional<std::uint64_t> memory;  ///< kv_pool.memory; 0: none
  bool disk = false;                    ///< kv_pool.disk is set
};
struct KvPoolPlan {
  std::uint64_t memory = 0;  ///< bytes a rank; 0: there is no pool
  std::string explanation;
};

/// Plans the pool. Throws UsageError where the settings hold no block, or a disk has no memory
/// above it.
[[nodiscard]] KvPoolPlan plan_kv_pool(const KvPoolFacts& facts, const KvPoolSettings& settings);

}  // namespace paceline::policy
