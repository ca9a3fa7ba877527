// The tiers of a simulated rank's part of the KV pool: how long memory and disk take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/kv/tier_device.hpp"
#include "runtime/sim/network.hpp"
#include "runtime/sim/world.hpp"

namespace paceline::sim {

/// Of one rank.
struct TierOptions {
  Link memory;  ///< between its KV and its host's memory
  Link disk_write, disk_read;
  std::size_t block_bytes = 0;
  double bytes_per_byte = 1;  ///< that are moved for each byte of a block
  /// Memory that stands for every unit: nobody looks at it. Empty: blocks are real and are moved.
  std::span<std::byte> addresses;
  double damaged = 0;      ///< share of blocks that are damaged when they are taken
  std::uint64_t seed = 0;  ///< of that chance
};

/// Copies go one after the other, and so do the disk's jobs. What a job writes is there when it is
/// first heard that it has ended, and something else before. Not thread-safe.
class ModelledTiers final : public kv::TierDevice {
 public:
  /// Wakes the actor. `rank`: of its chances.
  ModelledTiers(World& world, ActorId actor, int rank, const TierOptions& options);

  void start(kv::TierJob job) override;
  [[nodiscard]] std::optional<kv::TierJob> ended() override;
  [[nodiscard]] std::span<std::byte> unit(std::int32_t unit) override;
  void trim(std::int32_t) override {}
  [[nodiscard]] std::shared_ptr<void> memory() override { return nullptr; }

 private:
  using Bytes = std::vector<std::byte>;
  struct Lane {
    std::deque<kv::TierJob> jobs;
    std::deque<double> ends;  ///< [jobs]
    double free_at = 0;
  };
  [[nodiscard]] const Link* disk_link(kv::TierJob::Kind kind) const;
  void perform(kv::TierJob& job);
  void move(kv::TierJob::Kind kind, kv::TierJob::Block& block);

  World& world_;
  ActorId actor_;
  int rank_;
  TierOptions options_;
  Lane copies_, disk_;
  std::unordered_map<std::int32_t, Bytes> units_, slots_;  ///< where blocks are real
  std::uint32_t taken_ = 0;                                ///< blocks
};

}  // namespace paceline::sim
