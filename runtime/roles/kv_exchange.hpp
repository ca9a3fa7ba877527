// KV of requests that go from one verifier group to another, as a group's verifier sees it
// (messages.hpp says how a move goes).
#pragma once

#include <cstdint>
#include <map>

#include "runtime/core/mailbox.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/policy/move_split.hpp"
#include "runtime/policy/placement.hpp"
#include "runtime/roles/group.hpp"
#include "runtime/roles/messages.hpp"

namespace paceline::roles {

/// Where the KV of a request is that was offered.
struct KvOrigin {
  std::uint64_t key = 0;  ///< of its move or race
  GroupRanks from;
  std::int32_t positions = 0;  ///< 0: it has none elsewhere
};

/// What leaves is kept in a parcel until the other group has pulled what it wants of it. What
/// arrives is pulled, or declined, once the request has a place. Not thread-safe.
class KvExchange {
 public:
  /// References outlive this. `costs` decide how much is sent, and how much computed again.
  KvExchange(Mailbox& mailbox, engine::Batcher& batcher, KvLink& link,
             const policy::MoveCosts& costs, std::int32_t kv_block)
      : mailbox_(mailbox), batcher_(batcher), link_(link), costs_(costs), kv_block_(kv_block) {}

  /// Of a request that left, or of which a copy did.
  enum class Kind : std::uint8_t { moved, copied };
  /// Keeps KV for another group; an empty parcel is released at once.
  void keep(std::uint64_t key, kv::Parcel parcel, const GroupRanks& to, Kind kind);
  /// Whether KV is kept under that key for the group that the rank leads.
  [[nodiscard]] bool kept_for(std::uint64_t key, int leader) const;
  /// The other group says what it wants of it. Throws std::logic_error where it wants something of
  /// what is not kept.
  void on(const Pull& pull);

  /// Says that the KV is not wanted, unless there is none.
  void decline(KvOrigin& origin);
  /// Pulls what comes sooner from where it was than by computing it, into the blocks of a request
  /// that has a place in the batch. Returns how many positions.
  std::int32_t fetch(RequestId id, const KvOrigin& origin);
  /// Whether the request's blocks are being written.
  [[nodiscard]] bool arriving(RequestId id) const;

  /// Learns what has arrived, and gives back the blocks of what was sent.
  void settle();
  /// Groups that have no place there pull nothing more of requests that moved: they have ended, or
  /// are about to and hold none. For copies they do answer until they have ended.
  void part_from(const policy::Placement& placement, bool ended);
  /// Nothing is kept, and nothing on its way.
  [[nodiscard]] bool idle() const { return parcels_.empty() && arriving_.empty(); }

 private:
  struct Parcel {
    kv::Parcel kv;
    GroupRanks to;
    Kind kind = Kind::moved;
    bool pulled = false;
  };

  Mailbox& mailbox_;
  engine::Batcher& batcher_;
  KvLink& link_;
  policy::MoveCosts costs_;
  std::int32_t kv_block_;
  std::map<std::uint64_t, Parcel> parcels_;      ///< by key
  std::map<std::uint64_t, RequestId> arriving_;  ///< likewise
};

}  // namespace paceline::roles
