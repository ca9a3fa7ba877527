// What moves the bytes of a rank's stored KV: a real host's memory and disk, or modelled ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace paceline::kv {

/// Blocks that go one way. A `unit` is the place of a block in host memory, a `slot` one on disk,
/// `outside` one in the KV pool of the rank.
struct TierJob {
  enum class Kind : std::uint8_t {
    take_in,        ///< from outside to units; their sums are new
    give_out,       ///< from units to outside
    check,          ///< look at units
    go_down,        ///< from units to slots, which follow one another
    come_up,        ///< from slots, which follow one another, to units
    give_out_disk,  ///< from slots, which follow one another, to outside
  };
  struct Block {
    std::int32_t unit = -1;
    std::int32_t slot = -1;
    std::byte* outside = nullptr;
    std::uint64_t sum = 0;  ///< of what the block must hold
    bool good = true;       ///< afterwards, but of take_in and go_down: it holds that
  };
  std::uint64_t id = 0;  ///< the caller's
  Kind kind = Kind::take_in;
  std::vector<Block> blocks;
  /// Afterwards: why the disk did not do it; empty: it did. Of go_down, nothing is in the slots
  /// then; of the others, no block is good.
  std::string failure;
};

/// Does jobs in the background, those of memory and those of the disk in their order each, and
/// wakes whoever started them when one has ended. Used by one thread.
class TierDevice {
 public:
  virtual ~TierDevice() = default;
  virtual void start(TierJob job) = 0;
  /// The next that has ended, if one has.
  [[nodiscard]] virtual std::optional<TierJob> ended() = 0;
  /// The memory of a unit, as long as the unit is in use.
  [[nodiscard]] virtual std::span<std::byte> unit(std::int32_t unit) = 0;
  /// No unit from this one on is in use: its memory may go.
  virtual void trim(std::int32_t units) = 0;
  /// Whoever has it keeps the memory of all units.
  [[nodiscard]] virtual std::shared_ptr<void> memory() = 0;
};

}  // namespace paceline::kv
