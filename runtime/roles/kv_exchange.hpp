// A verifier's part in moves of KV (messages.hpp explains moves). A request can leave for another
// group, arrive from another group, or wait for its next lease or turn. In a race (races.hpp),
// another group generates the same response at the same time, and gets a copy of the request's KV.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

#include "runtime/core/mailbox.hpp"
#include "runtime/core/optional_index.hpp"
#include "runtime/core/request.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/kv/sequences.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/move_split.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/roles/group.hpp"

namespace paceline::roles {

/// A move of one request's KV: to or from another group, or to or from the stores of this group.
/// Each rank of this group moves its own share of the KV. Like the handle of a transfer in NIXL, a
/// move is prepared, posted, done and released. A move of stored KV may be posted twice: first into
/// the stores, later out of them. Changes of state in another order throw std::logic_error.
struct KvMove {
  enum class Kind : std::uint8_t {
    given,    ///< KV of a request that left for another group
    copied,   ///< a copy of a request's KV, for the other group of a race
    stored,   ///< KV of a request that waits for its next lease or turn
    fetched,  ///< KV from another group, for a request of this group
  };
  enum class State : std::uint8_t {
    prepared,  ///< the KV waits until a group wants or declines it
    posted,    ///< the group's ranks are storing, restoring, sending or receiving KV
    done,      ///< every rank's share has ended
    released,  ///< no KV is kept any more, and the move is erased
  };
  Kind kind = Kind::fetched;
  State state = State::prepared;
  kv::Parcel parcel = {};      ///< blocks that keep the KV until it is sent or stored
  policy::GroupRanks to = {};  ///< group that may pull given or copied KV
  std::int32_t positions = 0;  ///< positions up to the end of the wanted part; set with `request`
  OptionalIndex owner = {};    ///< index of the only rank with the kept KV; absent: each has a part
  std::optional<protocol::Pull> wanted = {};  ///< the wanted part, and the group that wants it
  bool declined = false;                      ///< no group will want the KV
  std::optional<RequestId> request{};         ///< request of this group that gets the wanted part
  std::set<int> awaited = {};                 ///< ranks whose shares are in flight
  bool complete = false;                      ///< no share of the posted move has failed

  void post(const policy::GroupRanks& ranks) {
    change(State::prepared, State::posted);
    for (int rank = 0; rank < ranks.tp; ++rank) awaited.insert(ranks.leader + rank);
    complete = true;
  }
  /// Notes the end of a rank's share. Returns whether this was the last share. Ignores ranks that
  /// are not awaited: the report may be a former drafter's, and drafters can send anything.
  [[nodiscard]] bool share_ended(int rank, bool share_complete) {
    if (awaited.erase(rank) == 0) return false;
    complete = complete && share_complete;
    if (!awaited.empty()) return false;
    change(State::posted, State::done);
    return true;
  }
  void prepare_again() { change(State::done, State::prepared); }
  void release() {
    change(state == State::prepared ? State::prepared : State::done, State::released);
  }

 private:
  void change(State before, State after) {
    if (state != before) throw std::logic_error("a KV move changes its state out of order");
    state = after;
  }
};

/// The KV of a request that leaves is kept in a parcel until the other group has pulled the part
/// that it wants, or has declined all KV. When an arriving request has got a place in the batch,
/// its KV is pulled or declined. The KV of a request that waits for its next lease or turn is
/// stored. Every rank of the group reports when its share of a move has ended. Not thread-safe.
class KvExchange {
 public:
  /// References outlive this. `ranks`: this group. `costs`: they decide how much of a request's KV
  /// is transferred, and how much is computed again.
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
  /// Tells the stores of this group in which order stored KV will be wanted.
  void foresee(const protocol::ForeseeKv& order) { group_.command(order); }
  /// Forgets KV kept under the key, because no group will want it. Does nothing if none is kept.
  void forget(std::uint64_t key);

  /// Whether KV is kept under the key for the group that `leader` leads, or stored for any group.
  [[nodiscard]] bool kept_for(std::uint64_t key, int leader) const;
  /// Sends a group the KV that it wants. Throws std::logic_error if the KV is not kept.
  void on(const protocol::Pull& pull);
  /// Tells the group that keeps `kv` to drop it, and empties `kv`. Does nothing if `kv` is empty.
  void decline(policy::KeptKv& kv);
  /// Fetches KV into the blocks of a request that has a place in the batch. From another group it
  /// fetches only the positions that split_move() selects. Declines the KV if it fetches none.
  void fetch(RequestId id, policy::KeptKv kv);

  /// Notes that a rank's share of a move has ended. After the last share, the parcel that kept the
  /// KV is released, and a request that awaited the KV goes on. Returns whether this was the last
  /// share. Does nothing if no such share is in flight.
  bool share_ended(int rank, const protocol::KvMoved& moved);
  /// Notes which of the leader's shares have ended. Returns whether any was a move's last share.
  [[nodiscard]] bool settle();
  /// Number of positions whose KV has come so far, from other groups or this group's stores.
  [[nodiscard]] std::uint64_t fetched() const { return fetched_; }
  /// Whether a move for the request is in flight, and may be writing KV into the request's blocks.
  [[nodiscard]] bool arriving(RequestId id) const;
  /// Releases KV given to groups that are not in `placement`, because they hold no requests any
  /// more. `ended`: these groups have ended, so KV copied for their races is released too.
  void part_from(const policy::Placement& placement, bool ended);
  /// Whether no KV is kept, stored or arriving.
  [[nodiscard]] bool idle() const { return moves_.empty(); }

 private:
  using Moves = std::map<std::uint64_t, KvMove>;

  void go_on(Moves::iterator at);
  void release(Moves::iterator at);
  [[nodiscard]] std::vector<std::int32_t> wanted_blocks(const KvMove& move) const;

  Mailbox& mailbox_;
  engine::Batcher& batcher_;
  Group& group_;
  policy::GroupRanks ranks_;
  policy::MoveCosts costs_;
  std::int32_t kv_block_;
  Moves moves_;  ///< by key
  std::uint64_t fetched_ = 0;
};

}  // namespace paceline::roles
