// Measures the cost of moving KV between groups, by moving some.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "runtime/core/clock.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/kv/block_owners.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/roles/kv_share.hpp"

namespace paceline {

/// A rank's part in the measurement. One of two groups sends, the other receives.
struct TransferEnd {
  roles::KvShare* share = nullptr;  ///< null: the rank moves nothing, but takes part in the sums
  double block_bytes = 0;           ///< bytes of the rank's share of a block
  policy::GroupRanks peer;
  bool receives = false;  ///< true: receives from the peer; false: sends to it
  int blocks = 0;         ///< blocks in a rank's pool; the same on all ranks
  /// This rank's place in its group, if each rank has the KV of its own requests.
  kv::BlockOwner owner = {};
};

/// Sums each value over all ranks; all ranks get the same bits. Collective.
using SumOverRanks = std::function<void(std::span<double>)>;

/// Measures all pairs of groups at once, for about `seconds` seconds at most. Moves of one block
/// show the latency, moves of many blocks the bandwidth. A move's time is the mean over all
/// receiving ranks. Each move is repeated, and the lower quartile of its times counts. Collective;
/// no other move may be under way. Afterwards the content of the KV pool is undefined. Returns
/// nullopt if no rank receives or a transfer failed.
[[nodiscard]] std::optional<TransferCosts> measure_transfers(const TransferEnd& end,
                                                             Mailbox& mailbox, const Clock& clock,
                                                             double seconds,
                                                             const SumOverRanks& sum);

}  // namespace paceline
