// A rank's part of the KV pool on a real machine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "io/config/run_config.hpp"
#include "kernels/backend.hpp"
#include "runtime/kv/host_tiers.hpp"
#include "runtime/kv/store.hpp"

namespace paceline::app {

/// Tests kv_pool.disk on this rank's node, named `host` in messages. Throws UsageError if no file
/// can be made there.
void check_kv_disk(const io::KvPoolSection& settings, const std::string& host);

/// A rank's part of the pool.
struct KvPart {
  std::uint64_t memory = 0;  ///< bytes; 0: there is no pool
  int sharers = 1;           ///< ranks that share the node's disk
  bool on_device = false;    ///< the rank's KV is in a device's memory
};

/// Calls to the store's owner: `wake` by any thread, `warn` by the owner's own thread.
struct KvStorageEvents {
  std::function<void()> wake;
  std::function<void(const std::string&)> warn;
};

/// The store of a rank. Destroy it after its users, and before the KV whose blocks it copies.
struct KvStorage {
  std::unique_ptr<kv::HostTiers> tiers;
  std::unique_ptr<kv::Store> store;  ///< null: there is no pool
};

/// Makes the store for KV blocks of `shape`. If the disk cannot be used, the owner is warned and
/// the store has only memory; if memory cannot be used either, there is no store.
[[nodiscard]] KvStorage make_kv_storage(const io::KvPoolSection& settings, const KvPart& part,
                                        const kernels::KvShape& shape,
                                        const KvStorageEvents& events);

}  // namespace paceline::app
