// Measures what it costs to move KV between groups, by moving some.
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
  roles::KvShare* share = nullptr;  ///< null: the rank looks on
  double block_bytes = 0;           ///< of the share
  policy::GroupRanks peer;
  bool receives = false;  ///< from the peer; else it sends
  int blocks = 0;         ///< in every rank's pool; the same on all ranks
  /// This rank among those of its group that have the KV of their own requests.
  kv::BlockOwner owner = {};
};

/// Sums each value over all ranks, the same bits on all. Collective.
using SumOverRanks = std::function<void(std::span<double>)>;

/// Measures all pairs of groups at once, for about so many seconds at most: one block for the
/// latency, many for the bandwidth, each several times. The mean of all receiving ranks counts, and
/// of several times the lower quartile. Collective; no other move may be under way. The KV pool
/// holds rubbish afterwards. nullopt where no rank receives or a transfer failed.
[[nodiscard]] std::optional<TransferCosts> measure_transfers(const TransferEnd& end,
                                                             Mailbox& mailbox, const Clock& clock,
                                                             double seconds,
                                                             const SumOverRanks& sum);

}  // namespace paceline
