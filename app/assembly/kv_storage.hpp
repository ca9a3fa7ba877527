// A rank's part of the KV pool on a real machine. The pool keeps the KV of waiting requests in host
// memory and, if kv_pool.disk is set, on disk.
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

/// Throws UsageError if no file can be made in kv_pool.disk on this rank's node. `host`: the node's
/// name for messages.
void check_kv_disk(const io::KvPoolSection& settings, const std::string& host);

/// Facts about a rank that make_kv_storage() needs.
struct KvPart {
  std::uint64_t memory = 0;  ///< bytes of host memory; 0: there is no pool
  int sharers = 1;           ///< ranks that share the node's disk
  bool on_device = false;    ///< the rank's KV is in a device's memory
};

/// Callbacks to the rank that owns the store. The threads that copy KV call `wake` when a copy has
/// ended or failed. The rank's own thread calls `warn`.
struct KvStorageEvents {
  std::function<void()> wake;
  std::function<void(const std::string&)> warn;
};

/// A rank's store. Destroy it after its users, but before the KV memory whose blocks it copies.
struct KvStorage {
  std::unique_ptr<kv::HostTiers> tiers;
  std::unique_ptr<kv::Store> store;  ///< null: the rank has no part in the pool
};

/// Makes the store for KV blocks of `shape`. If no file can be made on the disk, warns, and the
/// store has memory only. If memory cannot be reserved either, warns, and there is no store.
[[nodiscard]] KvStorage make_kv_storage(const io::KvPoolSection& settings, const KvPart& part,
                                        const kernels::KvShape& shape,
                                        const KvStorageEvents& events);

}  // namespace paceline::app
