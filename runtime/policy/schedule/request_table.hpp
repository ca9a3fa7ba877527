// Every request of a run: waiting, held by a group, or on a move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "runtime/core/admission.hpp"
#include "runtime/core/optional_index.hpp"
#include "runtime/core/request.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/leases.hpp"
#include "runtime/policy/schedule/request_order.hpp"
#include "runtime/policy/schedule/response_lengths.hpp"

namespace paceline::policy {

/// KV of a request that a group keeps, in its blocks or stores, for the group that goes on with the
/// request.
struct KeptKv {
  std::uint64_t key = 0;       ///< key of the move or race, or of a turn's end
  GroupRanks group = {};       ///< the ranks that keep it
  std::int32_t positions = 0;  ///< 0: none
  OptionalIndex owner = {};    ///< index of the rank that keeps all of it; absent: each has a part
};

/// A request that waits to be leased.
struct WaitingRequest {
  Trajectory trajectory;
  KeptKv kv = {};
};

/// A request that is leased to a group and whose response is not known to be on disk.
struct LeasedRequest {
  int group = 0;                    ///< leader of the group that holds it
  std::uint32_t until = kToTheEnd;  ///< response tokens at which the lease ends
  std::uint32_t tokens = 0;         ///< known length of its response
  bool ended = false;               ///< its response ended, but may not be on disk yet
  OptionalIndex method = {};        ///< index of its last drafter; absent: none
  double acceptance = 0;            ///< acceptance of that drafter's drafts
  std::vector<int> raced = {};      ///< drafters of its past races
};

/// A move's destination, in place of a leader, if the request goes back to the waiting requests.
inline constexpr int kToTable = -1;

/// Order to move a request.
struct RequestMove {
  RequestId id;
  int to = 0;  ///< leader, or kToTable
};

/// A race (best-of-N): a second group, the racer, generates another group's request with another
/// drafter. Each group learns coming tokens from the other (roles/races.hpp).
struct RequestRace {
  RequestId id;
  int group = 0;         ///< leader of the racer
  int method = 0;        ///< index of the racer's drafter
  bool running = false;  ///< the racer has the request
};

/// Table of all requests of a run, each waiting, leased or finished. It only keeps books: its
/// callers decide, and send the orders to groups. Throws std::logic_error on an impossible report.
/// Not thread-safe.
class RequestTable {
 public:
  /// `work`: requests to generate. `order`: the order of leases; requests are added to it in the
  /// order of `work`. `finished_before`: number of requests of the run that earlier attempts
  /// finished. `max_tokens`: limit on the tokens of a response.
  RequestTable(std::vector<Trajectory> work, std::unique_ptr<RequestOrder> order,
               std::size_t finished_before, std::uint32_t max_tokens);

  /// Adds a further request to the run: it waits.
  void add(Trajectory trajectory);
  /// Removes from the run a waiting request that was never leased.
  void withdraw(RequestId id);

  /// The content of the message that tells a group of its lease.
  struct Leased {
    WaitingRequest request;
    std::uint64_t version = 0;  ///< the holder's: the number of the lease, move or race
  };
  /// Leases a waiting request to the group, until its response has `until` tokens.
  [[nodiscard]] Leased lease(RequestId id, int group, std::uint32_t until);
  /// Extends a lease.
  void renew(RequestId id, std::uint32_t until) { leased_.at(id).until = until; }
  /// Plans a move, to another group or back to the table, of a request that is not on a move.
  /// Returns the move's key, which is the version of the next holder. Leases, moves and races of
  /// the run are counted together.
  std::uint64_t move(RequestId id, int to);

  /// Plans a race for a request that another group holds. Returns the race's key, which is counted
  /// with the keys of moves.
  std::uint64_t race(const RequestRace& race);

  // Reports of groups.
  /// Reports that the request's move is made.
  void moved(RequestId id);
  /// Reports that the move is void: the request had ended before, and stays where it is.
  void kept(RequestId id) { (void)take_move(id); }
  /// Reports that the move back to the table is made: the request waits. `kv`: what its former
  /// group has stored.
  void returned(Trajectory trajectory, const KeptKv& kv);
  /// Reports the lengths of responses. The report may come late, even from a group that a request
  /// has left. It is ignored if the request is not leased, or is longer already.
  void grew(std::span<const RequestLength> running);
  void ended(RequestId id, std::uint32_t tokens);
  /// Reports the request's last drafter and the acceptance of its drafts.
  void drafted(RequestId id, int method, double acceptance);
  /// Reports that the racer has the request.
  void race_began(std::uint64_t key);
  /// Reports that the race ended, or never began.
  void race_ended(std::uint64_t key);
  /// Forgets the KV that the group has stored for waiting requests. Returns the keys of the moves
  /// that stored it.
  [[nodiscard]] std::vector<std::uint64_t> forget_stored(int group);
  /// Reports that the group no longer exists: forgets its races.
  void group_ended(int group);
  /// Reports that the response is on disk. `group` must hold the request.
  void finished(RequestId id, int group);

  [[nodiscard]] std::size_t total() const { return total_; }
  [[nodiscard]] std::size_t finished() const { return finished_; }
  [[nodiscard]] std::size_t finished_before() const { return finished_before_; }
  [[nodiscard]] bool complete() const { return finished_ == total_; }
  /// Requests that wait.
  [[nodiscard]] const std::map<RequestId, WaitingRequest>& waiting() const { return waiting_; }
  [[nodiscard]] RequestOrder& order() const { return *order_; }
  /// Waiting requests that groups have given back: some of their tokens may be on no disk.
  [[nodiscard]] const std::set<RequestId>& given_back() const { return given_back_; }
  [[nodiscard]] const std::map<RequestId, LeasedRequest>& leased() const { return leased_; }
  /// Leased requests that the group holds.
  [[nodiscard]] int held_by(int group) const;
  /// Destinations of moves in progress: each a leader, or kToTable. A request may have finished
  /// before its group heard of the move.
  [[nodiscard]] const std::map<RequestId, int>& moves() const { return moves_; }
  /// Planned and running races, by key.
  [[nodiscard]] const std::map<std::uint64_t, RequestRace>& races() const { return races_; }
  /// Races begun so far.
  [[nodiscard]] std::size_t races_begun() const { return races_begun_; }
  /// Moves made from group to group.
  [[nodiscard]] std::size_t moves_made() const { return moves_made_; }
  [[nodiscard]] const ResponseLengths& lengths() const { return lengths_; }

 private:
  [[nodiscard]] int take_move(RequestId id);
  void forget_lease(RequestId id);

  std::map<RequestId, WaitingRequest> waiting_;
  std::unique_ptr<RequestOrder> order_;
  std::map<RequestId, LeasedRequest> leased_;
  /// [prompts][samples] Requests of leased_, for quick lookup by grew(); null: not leased.
  std::vector<std::vector<LeasedRequest*>> leased_at_;
  std::map<int, int> held_;  ///< by leader
  std::map<RequestId, int> moves_;
  std::map<std::uint64_t, RequestRace> races_;
  std::uint64_t next_version_ = 1;  ///< version of the next lease, move or race
  std::set<RequestId> given_back_;  ///< kept apart, because waiting requests are many
  std::size_t moves_made_ = 0;
  std::size_t races_begun_ = 0;
  std::size_t finished_before_;
  std::size_t finished_;
  std::size_t total_;
  ResponseLengths lengths_;
};

}  // namespace paceline::policy
