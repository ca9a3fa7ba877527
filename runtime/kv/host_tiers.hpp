// The two tiers of stored KV on a real host: memory of this process, and a file on a local disk.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/kv/slot_file.hpp"
#include "runtime/kv/tier_device.hpp"

namespace paceline::kv {

/// Copies between host memory and the rank's KV blocks. This class is for KV blocks in host memory;
/// derived classes are for KV blocks in a GPU's memory. Each object is used by one thread.
class OutsideMemory {
 public:
  virtual ~OutsideMemory() = default;
  virtual void read(std::byte* to, const std::byte* outside, std::size_t bytes);
  virtual void write(std::byte* outside, const std::byte* from, std::size_t bytes);
};

struct HostTiersOptions {
  std::size_t block_bytes = 0;
  std::int32_t units = 0;                ///< number of blocks that the memory tier can hold
  std::optional<std::string> directory;  ///< directory of the file; absent: no disk
  /// Makes the OutsideMemory of each thread; empty: the rank's KV blocks are in host memory.
  std::function<std::unique_ptr<OutsideMemory>()> outside;
  /// Called by a thread of HostTiers when it has ended a job, or when an exception ends the thread.
  std::function<void()> wake;
};

/// The tiers of one rank. One thread does the jobs in memory, another the jobs that use the file,
/// so jobs in memory do not wait for the disk. A unit takes system memory when first written.
class HostTiers final : public TierDevice {
 public:
  /// Throws IoError if no file can be made, or if there is no address space for all units.
  explicit HostTiers(HostTiersOptions options);
  /// Drops jobs that have not begun.
  ~HostTiers() override;

  /// Bytes that a block of `block_bytes` bytes takes in each tier.
  [[nodiscard]] static std::size_t stride(std::size_t block_bytes);

  void start(TierJob job) override;
  /// Rethrows an exception that ended one of the threads.
  [[nodiscard]] std::optional<TierJob> ended() override;
  [[nodiscard]] std::span<std::byte> unit(std::int32_t unit) override;
  void trim(std::int32_t units) override;
  [[nodiscard]] std::shared_ptr<void> memory() override { return memory_; }

 private:
  /// One thread and its jobs, which it does in order.
  struct Lane {
    std::deque<TierJob> jobs;
    std::condition_variable changed;
    std::thread thread;
  };
  void work(Lane& lane);
  void copy(TierJob& job, OutsideMemory& outside);
  void use_file(TierJob& job, OutsideMemory& outside);
  void read_out(TierJob& job, OutsideMemory& outside);
  [[nodiscard]] std::uint64_t sum(const std::byte* block) const;

  HostTiersOptions options_;
  std::size_t stride_;
  std::shared_ptr<void> memory_;  ///< [units * stride]
  std::int32_t touched_ = 0;      ///< units from this number on are unused, and take no memory
  std::optional<SlotFile> file_;
  std::shared_ptr<void> stage_;  ///< the disk thread's buffer, made when first needed
  std::size_t stage_bytes_ = 0;

  std::mutex mutex_;
  std::deque<TierJob> ended_;
  std::exception_ptr fault_;
  bool stop_ = false;
  Lane copies_, disk_;
};

}  // namespace paceline::kv
