#include "app/assembly/kv_storage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "runtime/core/error.hpp"
#include "runtime/fabric/device_staging.hpp"
#include "runtime/kv/slot_file.hpp"

namespace paceline::app {
namespace {

/// Copies KV between host memory and a device, through pinned memory.
class DeviceMemory final : public kv::OutsideMemory {
 public:
  void read(std::byte* to, const std::byte* outside, std::size_t bytes) override {
    prepare(outside);
    for (std::size_t done = 0; done < bytes; done += fabric::DeviceStaging::kBytes) {
      const std::size_t part = std::min(bytes - done, fabric::DeviceStaging::kBytes);
      staging_->to_host(pinned_, outside + done, part);
      std::memcpy(to + done, pinned_, part);
    }
  }
  void write(std::byte* outside, const std::byte* from, std::size_t bytes) override {
    prepare(outside);
    for (std::size_t done = 0; done < bytes; done += fabric::DeviceStaging::kBytes) {
      const std::size_t part = std::min(bytes - done, fabric::DeviceStaging::kBytes);
      std::memcpy(pinned_, from + done, part);
      staging_->to_device(outside + done, pinned_, part);
    }
  }

 private:
  void prepare(const std::byte* outside) {
    if (staging_ != nullptr) return;
    staging_ = fabric::make_device_staging();
    if (staging_ == nullptr || !staging_->is_device(outside))
      throw Error(ExitCode::internal,
                  "this rank's KV should be in a device's memory, but no CUDA device was found "
                  "that has it");
    pinned_ = staging_->allocate();
  }
  std::unique_ptr<fabric::DeviceStaging> staging_;
  std::byte* pinned_ = nullptr;
};

/// Greatest number of blocks that one copy job moves. Larger jobs would hardly make a disk faster.
std::int32_t blocks_at_once(std::size_t stride) {
  constexpr std::size_t kJobBytes = std::size_t{4} << 20;
  return static_cast<std::int32_t>(std::max<std::size_t>(1, kJobBytes / stride));
}

/// Bytes that each of `sharers` ranks may take in kv_pool.disk: an equal part of kv_pool.disk_size
/// or, by default, of half the free space. UINT64_MAX if the free space cannot be read; the
/// attempt to make the file then reports the cause.
std::uint64_t disk_bytes(const io::KvPoolSection& pool, int sharers) {
  if (pool.disk_size) return *pool.disk_size / sharers;
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(*pool.disk, error);
  return error ? UINT64_MAX : space.available / 2 / sharers;
}

std::int32_t blocks_in(std::uint64_t bytes, std::size_t stride) {
  return static_cast<std::int32_t>(std::min<std::uint64_t>(bytes / stride, INT32_MAX));
}

}  // namespace

void check_kv_disk(const io::KvPoolSection& settings, const std::string& host) {
  const std::optional<std::string>& directory = settings.disk;
  if (!directory) return;
  try {
    const kv::SlotFile file(*directory, kv::SlotFile::kAlignment);
  } catch (const IoError& error) {
    throw UsageError(
        fmt::format("kv_pool.disk: expected a writable directory on a disk of each node; on {}: {}",
                    host, error.what()));
  }
}

KvStorage make_kv_storage(const io::KvPoolSection& settings, const KvPart& part,
                          const kernels::KvShape& shape, const KvStorageEvents& events) {
  KvStorage storage;
  const std::size_t stride = kv::HostTiers::stride(shape.block_bytes());
  kv::StoreSize size;
  size.memory = blocks_in(part.memory, stride);
  size.at_once = blocks_at_once(stride);
  if (size.memory == 0) return storage;
  kv::HostTiersOptions options;
  options.block_bytes = shape.block_bytes();
  options.units = size.memory;
  options.wake = events.wake;
  if (part.on_device) options.outside = [] { return std::make_unique<DeviceMemory>(); };
  options.directory = settings.disk;
  if (options.directory) size.disk = blocks_in(disk_bytes(settings, part.sharers), stride);
  if (size.disk == 0) options.directory.reset();
  while (storage.tiers == nullptr) {
    try {
      storage.tiers = std::make_unique<kv::HostTiers>(options);
    } catch (const IoError& error) {
      events.warn(fmt::format("{}; {}", error.what(),
                              options.directory
                                  ? "this rank's part of the KV pool is in memory alone"
                                  : "this rank has no part in the KV pool"));
      if (!options.directory) return storage;
      options.directory.reset();
      size.disk = 0;
    }
  }
  storage.store = std::make_unique<kv::Store>(*storage.tiers, size, events.warn);
  return storage;
}

}  // namespace paceline::app
