// KV of requests that go from one verifier group to another, or wait for their next lease, as a
// group's verifier sees it (messages.hpp says how a move goes).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/mailbox.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/move_split.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/roles/group.hpp"

namespace paceline::roles {

/// Where the KV of a request is that was offered or leased.
struct KvOrigin {
  std::uint64_t key = 0;  ///< of its move or race, or under which it is stored
  GroupRanks from;
  std::int32_t positions = 0;  ///< 0: it has none elsewhere
};

/// What leaves is kept in a parcel until the other group has pulled what it wants of it. What
/// arrives is pulled, or declined, once the request has a place. What waits for its next lease is
/// stored until then. Not thread-safe.
class KvExchange {
 public:
  /// References outlive this. `ranks`: of the group. `costs` decide how much is sent, and how much
  /// computed again.
  KvExchange(Mailbox& mailbox, engine::Batcher& batcher, KvLink& link, const GroupRanks& ranks,
             const policy::MoveCosts& costs, std::int32_t kv_block)
      : mailbox_(mailbox),
        batcher_(batcher),
        link_(link),
        ranks_(ranks),
        costs_(costs),
        kv_block_(kv_block) {}

  /// Of a request that goes back to the coordinator. Returns how many positions may be had again
  /// under that key.
  std::int32_t store(std::uint64_t key, kv::Parcel parcel);
  /// Nobody will want it.
  void forget(std::uint64_t key);
  /// What is stored will be wanted in this order.
  void foresee(std::span<const std::uint64_t> keys) { link_.foresee(keys); }

  /// Of a request that left, or of which a copy did.
  enum class Kind : std::uint8_t { moved, copied };
  /// Keeps KV for another group; an empty parcel is released at once.
  void keep(std::uint64_t key, kv::Parcel parcel, const GroupRanks& to, Kind kind);
  /// Whether KV is kept under that key for the group that the rank leads, or stored for any.
  [[nodiscard]] bool kept_for(std::uint64_t key, int leader) const;
  /// The other group says what it wants of it. Throws std::logic_error where it wants something of
  /// what is not kept.
  void on(const Pull& pull);

  /// Says that the KV is not wanted, unless there is none.
  void decline(KvOrigin& origin);
  /// Takes what comes sooner from where it was than by computing it, into the blocks of a request
  /// that has a place in the batch.
  void fetch(RequestId id, KvOrigin origin);
  /// Positions that have arrived.
  [[nodiscard]] std::uint64_t fetched() const { return fetched_; }
  /// Whether the request's blocks are being written.
  [[nodiscard]] bool arriving(RequestId id) const;

  /// Learns what has arrived, and gives back the blocks of what was sent or stored. Whether there
  /// was any.
  [[nodiscard]] bool settle();
  /// Groups that have no place there pull nothing more of requests that moved: they have ended, or
  /// are about to and hold none. For copies they do answer until they have ended.
  void part_from(const policy::Placement& placement, bool ended);
  /// Nothing is kept, and nothing on its way.
  [[nodiscard]] bool idle() const {
    return parcels_.empty() && arriving_.empty() && stored_.empty();
  }

 private:
  struct Parcel {
    kv::Parcel kv;
    GroupRanks to;
    Kind kind = Kind::moved;
    bool pulled = false;
  };
  /// In the store, or on its way into it or out of it.
  struct Stored {
    kv::Parcel parcel;  ///< until it is there
    enum class State : std::uint8_t { storing, stored, leaving } state = State::storing;
    std::int32_t positions = 0;
    bool forgotten = false;
    std::optional<Pull> wanted = {};  ///< by another group, or by a request that runs here again
  };

  struct Arriving {
    RequestId id;
    std::int32_t positions = 0;
  };

  void arrived(const Arriving& arriving, bool complete);
  void begin_to_leave(std::uint64_t key, Stored& stored);
  [[nodiscard]] bool settle_stored();
  void left(std::uint64_t key, bool complete);
  [[nodiscard]] std::vector<std::int32_t> blocks_of(RequestId id, std::int32_t first_block,
                                                    std::int32_t positions) const;

  Mailbox& mailbox_;
  engine::Batcher& batcher_;
  KvLink& link_;
  GroupRanks ranks_;
  policy::MoveCosts costs_;
  std::int32_t kv_block_;
  std::map<std::uint64_t, Parcel> parcels_;     ///< by key
  std::map<std::uint64_t, Arriving> arriving_;  ///< likewise
  std::map<std::uint64_t, Stored> stored_;      ///< likewise
  std::uint64_t fetched_ = 0;
};

}  // namespace paceline::roles
