// A verifier's part in KV moves: KV of requests that leave for another group, arrive from one, or
// wait for their next lease (messages.hpp says how a move goes).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "runtime/core/mailbox.hpp"
#include "runtime/core/optional_index.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/move_split.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/roles/group.hpp"
#include "runtime/roles/kv_move.hpp"

namespace paceline::roles {

/// KV that leaves is kept in a parcel until the other group has pulled its part. KV from elsewhere
/// is pulled, or declined, once the request has a place in the batch. KV of a request that waits
/// for its next lease is stored until then. Not thread-safe.
class KvExchange {
 public:
  /// References outlive this. `ranks`: ranks of this group. `costs` decide how much KV is
  /// transferred, and how much computed again.
  KvExchange(Mailbox& mailbox, engine::Batcher& batcher, Group& group,
             const policy::GroupRanks& ranks, const policy::MoveCosts& costs, std::int32_t kv_block)
      : mailbox_(mailbox),
        batcher_(batcher),
        group_(group),
        ranks_(ranks),
        costs_(costs),
        kv_block_(kv_block) {}

  /// Keeps KV for another group. `kind`: given or copied. An empty parcel is released at once.
  policy::KeptKv keep(std::uint64_t key, kv::Parcel parcel, const policy::GroupRanks& to,
                      KvMove::Kind kind);
  /// Stores the KV of a request that waits for its next lease, or its next turn.
  policy::KeptKv store(std::uint64_t key, kv::Parcel parcel);
  /// Tells the stores in which order of keys their KV will be wanted.
  void foresee(std::span<const std::uint64_t> keys) { group_.foresee(keys); }
  /// Forgets the KV kept under the key: nobody will want it. Does nothing if none is kept.
  void forget(std::uint64_t key);

  /// Whether KV is kept under the key for the group that `leader` leads, or stored for any group.
  [[nodiscard]] bool kept_for(std::uint64_t key, int leader) const;
  /// Gives the other group the KV that it wants. Throws std::logic_error if the KV is not kept.
  void on(const protocol::Pull& pull);
  /// Tells the KV's keeper, a group, that nobody wants the KV. Does nothing where there is no KV.
  void decline(policy::KeptKv& kv);
  /// Fetches the KV that a transfer brings sooner than it could be computed, into the blocks of a
  /// request that has a place in the batch.
  void fetch(RequestId id, policy::KeptKv kv);
  /// Notes that a member's share has ended.
  void heard(const protocol::KvMoved& moved);

  /// Learns which KV has arrived, and frees the blocks of KV that was sent or stored. The cost
  /// grows with the moves in flight, not with the KV kept. Returns whether any move ended.
  [[nodiscard]] bool settle();
  /// Positions of KV that have arrived so far.
  [[nodiscard]] std::uint64_t fetched() const { return fetched_; }
  /// Whether the request's blocks are being written.
  [[nodiscard]] bool arriving(RequestId id) const;
  /// Frees parcels kept for groups without a place in `placement`: these groups hold no requests
  /// any more. Until they have `ended`, they may still pull copies, so copies are kept until then.
  void part_from(const policy::Placement& placement, bool ended);
  /// Whether no KV is kept, stored or arriving.
  [[nodiscard]] bool idle() const { return moves_.empty(); }

 private:
  using Moves = std::map<std::uint64_t, KvMove>;

  void post(Moves::iterator at);
  void go_on(Moves::iterator at);
  [[nodiscard]] bool settle(Moves::iterator at);
  void release(Moves::iterator at);
  [[nodiscard]] std::vector<std::int32_t> wanted_blocks(const KvMove& move) const;

  Mailbox& mailbox_;
  engine::Batcher& batcher_;
  Group& group_;
  policy::GroupRanks ranks_;
  policy::MoveCosts costs_;
  std::int32_t kv_block_;
  Moves moves_;                     ///< by key
  std::set<std::uint64_t> posted_;  ///< keys of moves that are posted
  std::uint64_t fetched_ = 0;
};

}  // namespace paceline::roles
