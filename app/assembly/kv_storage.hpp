// A rank's part of the KV pool on a real machine.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "app/assembly/setup.hpp"
#include "kernels/backend.hpp"
#include "runtime/kv/host_tiers.hpp"
#include "runtime/kv/store.hpp"

namespace paceline::app {

/// Tests kv_pool.disk on this rank's node. Throws UsageError naming `host` where no file can be
/// made there.
void check_kv_disk(const Setup& setup, const std::string& host);

/// What the store's owner is told of, on any thread (wake) and on its own (warn).
struct KvStorageEvents {
  std::function<void()> wake;
  std::function<void(const std::string&)> warn;
};

/// Goes after whoever uses it, and before the KV whose blocks it copies.
struct KvStorage {
  std::unique_ptr<kv::HostTiers> tiers;
  std::unique_ptr<kv::Store> store;  ///< null: there is no pool
};

/// For blocks of that shape. Memory that is not to be had, or a disk that is not there any more, is
/// told of and done without.
[[nodiscard]] KvStorage make_kv_storage(const Setup& setup, int rank, const kernels::KvShape& shape,
                                        const KvStorageEvents& events);

}  // namespace paceline::app
