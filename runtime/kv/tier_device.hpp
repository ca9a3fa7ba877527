// A device, real or modelled, with two tiers for a rank's stored KV: host memory and an optional
// disk. It moves KV between the tiers, and between them and the rank's KV blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace paceline::kv {

/// A job copies or checks blocks. A `unit` is a stored block's place in host memory, a `slot` its
/// place on disk. `outside` points to one of the KV blocks with which the rank computes.
struct TierJob {
  enum class Kind : std::uint8_t {
    take_in,        ///< from outside to units; sets the checksums
    give_out,       ///< from units to outside
    check,          ///< compares the bytes of units with their checksums
    go_down,        ///< from units to consecutive slots
    come_up,        ///< from consecutive slots to units
    give_out_disk,  ///< from consecutive slots to outside
  };
  struct Block {
    std::int32_t unit = -1;
    std::int32_t slot = -1;
    std::byte* outside = nullptr;
    std::uint64_t sum = 0;  ///< checksum of the block's bytes; 0 where bytes are only modelled
    bool good = true;       ///< false: the job found the block damaged, or could not read it
  };
  std::uint64_t id = 0;  ///< chosen by the caller
  Kind kind = Kind::take_in;
  std::vector<Block> blocks;
  /// Set by the job: error text if the disk failed, otherwise empty. After a failed go_down the
  /// slots hold no valid data. After any other failed job, no block is good.
  std::string failure;
};

/// Does jobs in the background, and wakes the caller whenever a job has ended. Jobs that use the
/// disk are in one queue, all other jobs in another. Each queue's jobs are done in the order of
/// start(). Used by one thread.
class TierDevice {
 public:
  virtual ~TierDevice() = default;
  virtual void start(TierJob job) = 0;
  /// Returns an ended job that it has not returned yet, or nothing if there is none.
  [[nodiscard]] virtual std::optional<TierJob> ended() = 0;
  /// The memory of a unit in use. If bytes are only modelled, do not access it.
  [[nodiscard]] virtual std::span<std::byte> unit(std::int32_t unit) = 0;
  /// Tells the device that no unit with number `units` or higher is in use, so that it can give the
  /// memory of these units back to the system.
  virtual void trim(std::int32_t units) = 0;
  /// A handle that keeps the memory of all units alive; null for a modelled device.
  [[nodiscard]] virtual std::shared_ptr<void> memory() = 0;
};

}  // namespace paceline::kv
