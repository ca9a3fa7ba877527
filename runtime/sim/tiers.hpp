// Tiers of a simulated rank's part of the KV pool: models the time that memory and disk take.
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

/// The tiers of one rank.
struct TierOptions {
  Link memory;  ///< between the rank's KV and its host's memory
  Link disk_write, disk_read;
  std::size_t block_bytes = 0;
  double bytes_per_byte = 1;  ///< bytes moved for each byte of a block
  /// Addresses that stand for every unit and are never accessed. Empty: blocks are real and are
  /// copied.
  std::span<std::byte> addresses;
  double damaged = 0;      ///< share of fetched blocks that are damaged
  std::uint64_t seed = 0;  ///< seed of the damage
};

/// Serves copies one after the other, and the disk's jobs one after the other. A job's bytes are in
/// place once ended() has returned it; before, its destination holds other bytes. Not thread-safe.
class ModelledTiers final : public kv::TierDevice {
 public:
  /// Wakes the actor when a job ends. `rank`: key of its random draws.
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
  std::unordered_map<std::int32_t, Bytes> units_, slots_;  ///< contents of real blocks
  std::uint32_t taken_ = 0;                                ///< blocks taken so far
};

}  // namespace paceline::sim
