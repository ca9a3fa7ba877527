// A KV move as a verifier knows it: KV of one request that leaves, arrives or is stored.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>

#include "runtime/core/request.hpp"
#include "runtime/kv/sequences.hpp"
#include "runtime/protocol/messages.hpp"

namespace paceline::roles {

/// Like the handle of a transfer in NIXL, a move is prepared, posted, done and released. Stored KV
/// is posted twice: into the store, and out of it. Any other transition throws std::logic_error.
struct KvMove {
  enum class Kind : std::uint8_t {
    given,    ///< KV of a request that left for another group
    copied,   ///< a copy of the KV of a request that another group races for
    stored,   ///< KV of a request that waits for its next lease, in any group
    fetched,  ///< KV from another group, for a request of this group
  };
  enum class State : std::uint8_t {
    prepared,  ///< the KV waits until somebody wants a part of it
    posted,    ///< the group's ranks put the KV into the store, or move it to where it is wanted
    done,      ///< every rank's share has ended
    released,  ///< nothing is kept; the table forgets it
  };
  Kind kind = Kind::fetched;
  State state = State::prepared;
  kv::Parcel parcel = {};      ///< blocks with the KV, until they are sent or stored
  policy::GroupRanks to = {};  ///< group that may pull given or copied KV
  std::int32_t positions = 0;  ///< positions of stored or fetched KV
  OptionalIndex owner = {};    ///< index of the only rank with the KV; absent: each has a part
  std::optional<protocol::Pull> wanted = {};  ///< the part that is wanted, and by whom
  bool declined = false;                      ///< nobody will want the KV
  std::optional<RequestId> request{};         ///< this group's request that gets the wanted part
  int members = 0;                            ///< number of members whose shares are in flight
  bool complete = false;                      ///< no share has failed

  void post(int of_members) {
    change(State::prepared, State::posted);
    members = of_members;
    complete = true;
  }
  void member_ended(bool share_complete) {
    if (members == 0) return;  // nonsense from a member that was a drafter before
    --members;
    complete = complete && share_complete;
  }
  void end(bool own_share_complete) {
    change(State::posted, State::done);
    complete = complete && own_share_complete;
  }
  void prepare_again() { change(State::done, State::prepared); }
  void release() {
    change(state == State::prepared ? State::prepared : State::done, State::released);
  }

 private:
  void change(State before, State after) {
    if (state != before) throw std::logic_error("a KV move out of order");
    state = after;
  }
};

}  // namespace paceline::roles
