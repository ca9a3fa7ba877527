// The requests of a run: which wait, which group has each of the others, and which are on a move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/leases.hpp"
#include "runtime/policy/schedule/request_order.hpp"
#include "runtime/policy/schedule/response_lengths.hpp"

namespace paceline::policy {

/// Where KV of a request is stored that waits.
struct StoredKv {
  GroupRanks group;            ///< on the ranks of this one
  std::uint64_t key = 0;       ///< of the move that took it there
  std::int32_t positions = 0;  ///< 0: nothing is stored
};

/// A request that waits to be leased.
struct WaitingRequest {
  Trajectory trajectory;
  StoredKv kv = {};
};

/// A request that a group was leased and that is not known to be on disk.
struct LeasedRequest {
  int group = 0;                    ///< leader of the one that holds it
  std::uint32_t until = kToTheEnd;  ///< response tokens at which the lease ends
  std::uint32_t tokens = 0;         ///< of its response, as far as is known
  bool ended = false;               ///< but perhaps not on disk yet
  std::uint64_t move = 0;           ///< key of the move it is on; 0: none
  int method = -1;              ///< index of the drafter it was last drafted for by; -1: by none
  double acceptance = 0;        ///< of that one's drafts
  std::vector<int> raced = {};  ///< drafters of the races for it that are over
};

/// In place of a leader: the request moves back to those that wait.
inline constexpr int kToTable = -1;

/// A request that is to go, or goes, elsewhere.
struct RequestMove {
  RequestId id;
  int to = 0;  ///< leader, or kToTable
};

/// Best-of-N: a group generates what another one holds, with another drafter, so that either learns
/// from the other what comes next (roles/races.hpp).
struct Race {
  RequestId id;
  int group = 0;         ///< leader of the one that races
  int method = 0;        ///< index of the drafter that drafts for it there
  bool running = false;  ///< it has the request; before that it has yet to get it
};

/// Every request of the run is waiting, leased or finished. Bookkeeping only: others decide, and
/// tell the groups. A report that cannot be throws std::logic_error. Not thread-safe.
class RequestTable {
 public:
  /// `work`: requests to generate. `order`: in which they are leased; they come in the order of
  /// `work`. `finished_before`: how many requests of the run earlier attempts finished.
  /// `max_tokens`: the longest response.
  RequestTable(std::vector<Trajectory> work, std::unique_ptr<RequestOrder> order,
               std::size_t finished_before, std::uint32_t max_tokens);

  /// A lease as its group is told of it.
  struct Lease {
    WaitingRequest request;
    std::uint64_t version = 0;  ///< of its holder: the n-th lease, move or race of the run
  };
  /// Gives the group a request that waits, until its response has so many tokens.
  [[nodiscard]] Lease lease(RequestId id, int group, std::uint32_t until);
  /// A lease goes on until then.
  void renew(RequestId id, std::uint32_t until) { leased_.at(id).until = until; }
  /// A request that is on no move is to go to another group, or back to the table. Returns the
  /// move's key, which is the version of the holder that it makes. Leases, moves and races of the
  /// run are counted together.
  std::uint64_t move(RequestId id, int to);

  /// A group is to race for a request that another one holds. Returns the race's key, of the same
  /// count.
  std::uint64_t race(const Race& race);

  // What groups report.
  /// The move is made. Returns its request.
  RequestId moved(std::uint64_t key);
  /// The request had ended before, and stays where it is.
  void kept(std::uint64_t key);
  /// A move back to the table is made: the request waits, with so many positions of its KV stored
  /// by the group that had it.
  void returned(std::uint64_t key, const GroupRanks& group, Trajectory trajectory,
                std::int32_t positions);
  /// A response has so many tokens. Comes late at times, from a group that it has left even: what
  /// is no longer leased is let be, and responses do not shrink.
  void grew(RequestId id, std::uint32_t tokens);
  void ended(RequestId id, std::uint32_t tokens);
  /// What drafted for it last, and how well.
  void drafted(RequestId id, int method, double acceptance);
  /// The racer has it.
  void race_began(std::uint64_t key);
  /// It races no longer, or never did.
  void race_ended(std::uint64_t key);
  /// What the group has stored is of no use any more. Returns the keys of what there was.
  [[nodiscard]] std::vector<std::uint64_t> forget_stored(int group);
  /// The group is none any more: nor does it race.
  void group_ended(int group);
  /// By the group that holds it: the response is on disk.
  void finished(RequestId id, int group);

  [[nodiscard]] std::size_t total() const { return total_; }
  [[nodiscard]] std::size_t finished() const { return finished_; }
  [[nodiscard]] std::size_t finished_before() const { return finished_before_; }
  [[nodiscard]] bool complete() const { return finished_ == total_; }
  /// Requests that wait.
  [[nodiscard]] const std::map<RequestId, WaitingRequest>& waiting() const { return waiting_; }
  [[nodiscard]] RequestOrder& order() const { return *order_; }
  /// Those that wait and were given back: they may have tokens that are on no disk.
  [[nodiscard]] const std::set<RequestId>& given_back() const { return given_back_; }
  [[nodiscard]] const std::map<RequestId, LeasedRequest>& leased() const { return leased_; }
  /// Leased requests that the group holds.
  [[nodiscard]] int held_by(int group) const;
  /// Moves under way, by key. A request may have finished before its group heard of the move.
  [[nodiscard]] const std::map<std::uint64_t, RequestMove>& moves() const { return moves_; }
  /// Races that are to be, and those under way, by key.
  [[nodiscard]] const std::map<std::uint64_t, Race>& races() const { return races_; }
  /// Races begun so far.
  [[nodiscard]] std::size_t races_begun() const { return races_begun_; }
  /// Moves made from group to group.
  [[nodiscard]] std::size_t moves_made() const { return moves_made_; }
  [[nodiscard]] const ResponseLengths& lengths() const { return lengths_; }

 private:
  [[nodiscard]] RequestMove take(std::uint64_t key);

  std::map<RequestId, WaitingRequest> waiting_;
  std::unique_ptr<RequestOrder> order_;
  std::map<RequestId, LeasedRequest> leased_;
  std::map<int, int> held_;  ///< by leader
  std::map<std::uint64_t, RequestMove> moves_;
  std::map<std::uint64_t, Race> races_;
  std::uint64_t next_version_ = 1;  ///< of a lease, a move or a race
  std::set<RequestId> given_back_;
  std::size_t moves_made_ = 0;
  std::size_t races_begun_ = 0;
  std::size_t finished_before_;
  std::size_t finished_;
  std::size_t total_;
  ResponseLengths lengths_;
};

}  // namespace paceline::policy
