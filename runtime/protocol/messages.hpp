// What the roles of a run say to each other. Messages of one sender arrive in order, those of
// several in any.
//
// A lease is for a chunk of a response. When its end is near the verifier says so (Status::ending),
// and the coordinator renews it (Renew) or moves the request elsewhere. Until it has said which,
// the request rests where it is.
//
// A request may also go back to the coordinator (Returned), and its KV into the stores of the
// group's ranks. With the next lease its verifier learns where that is, and takes it from there:
// its own ranks restore it, another group pulls it as below.
//
// A move: the coordinator (Move) has verifier A hand a request to B. A lets it go after a step and
// keeps its KV in a parcel (Offer, A to B). B tells the coordinator that it has it (Status::moved),
// or A that the request had ended before (Status::kept). Once B has room it says which blocks it
// wants (Pull); both leaders then command their members (MoveKv), who tell their leader when their
// share has arrived or gone (KvMoved), and A frees the parcel. A Pull of none frees it at once.
//
// A race (best-of-N) begins like a move, but that the request stays: the coordinator (Race) has
// verifier A offer a copy of it to B, which tells the coordinator that it has it
// (Status::races_begun), as A does where the request had ended before (Status::races_ended). From
// then on A and B tell each other what they commit (RaceCommit). Only A's response counts: whoever
// is behind verifies what the other has said. B tells the coordinator when it races no longer.
//
// A change of roles: see Coordinator.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "runtime/core/admission.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/engine/step.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/move_split.hpp"
#include "runtime/policy/schedule/request_table.hpp"
#include "runtime/protocol/draft_messages.hpp"

namespace paceline::roles {

/// Coordinator to verifier: generate this response, or its next chunk.
struct Lease {
  Admission request;    ///< without its prompt where the group was sent that before
  policy::StoredKv kv;  ///< that there is of it
};

/// Coordinator to verifier: the lease of this request goes on until its response has so many
/// tokens. It may have ended meanwhile.
struct Renew {
  RequestId id;
  std::uint32_t until = 0;
};

/// Coordinator to verifier: hand in what is unfinished after the current step.
struct Stop {};

/// Coordinator to all, and a leader to the members of its group: nothing more will come.
struct Finish {};

/// From now on ranks have these places. Coordinator to all that it concerns but members of groups,
/// which are told by their leader. Whoever's own place is another one ends its role, and takes the
/// new one; a verifier that stays learns of its drafters.
struct Place {
  policy::Placement placement;
};

/// Any rank to coordinator: its place in the placement of this epoch is taken, and what comes for
/// it is understood; or, by a verifier that stays, drafters that end were parted from.
struct Ready {
  std::uint32_t epoch = 0;
};

using policy::GroupRanks;

/// Coordinator to verifier: hand this request over to another group, or back to the coordinator. It
/// may have ended meanwhile.
struct Move {
  RequestId id;
  std::uint64_t key = 0;  ///< names the move, and is the version of the holder it makes
  GroupRanks to;          ///< of degree 0: the coordinator
};

/// Coordinator to verifier: let another group race for this request. It may have ended meanwhile.
struct Race {
  RequestId id;
  std::uint64_t key = 0;  ///< names the race, among moves too
  GroupRanks to;
  std::int32_t method = 0;  ///< index of the drafter that drafts for it there
};

/// Verifier to coordinator: the request is yours again, as far as it has got.
struct Returned {
  std::uint64_t key = 0;  ///< of the move
  Trajectory trajectory;
  std::int32_t positions = 0;  ///< whose KV its ranks have stored under that key
};

/// Verifier to verifier: the request is yours, or yours to race for. Its KV stays where it was
/// until pulled.
struct Offer {
  Admission request;  ///< with its prompt; its version is the key of the move or race
  GroupRanks from;
  std::int32_t positions = 0;  ///< whose KV there is
  std::int32_t method = -1;    ///< Race's; -1: it is a move
};

/// Between verifiers that race for a request: these tokens of its response are committed.
struct RaceCommit {
  RequestId id;
  std::uint64_t key = 0;  ///< of the race: what was said in an earlier one is of no account
  std::int32_t base = 0;  ///< response tokens before the first of them
  std::int32_t over = 0;  ///< 1: nothing more comes; the response ended, or is raced for no longer
  std::vector<TokenId> tokens;
};

/// In answer, or of what is stored: KV from this block of the request's table on is wanted. The
/// rest is computed again.
struct Pull {
  static constexpr std::int32_t kNone = INT32_MAX;  ///< no block is wanted
  std::uint64_t key = 0;
  std::int32_t first_block = 0;
  GroupRanks to;  ///< the group that wants it
};

/// Coordinator to verifier: nobody will want what is stored under these keys.
struct Forget {
  std::vector<std::uint64_t> keys;
};

/// Coordinator to verifier: what is stored under these keys will be wanted soon, in this order.
struct Foresee {
  std::vector<std::uint64_t> keys;
};

/// Leader to members, before all else: from here on it speaks as the leader of their group. What
/// comes before was meant for what the two were earlier; a leader that drafted may have sent
/// anything.
struct Lead {
  std::uint32_t epoch = 0;  ///< of the placement that made the group
};

/// Leader to members: carry this out with me.
struct RunStep {
  engine::Step step;
};

/// Leader to members: send these blocks to the other group, or fill them with what it sends.
struct MoveKv {
  std::uint64_t key = 0;
  GroupRanks peer;
  std::int32_t send = 0;                  ///< 1: send; 0: receive
  std::vector<std::int32_t> blocks = {};  ///< none where they are stored
  /// Of what is sent, 1: it is not in the KV pool but stored. All of that from `first_block` on is
  /// sent; the entry stays.
  std::int32_t stored = 0;
  std::uint64_t origin = 0;      ///< key under which it is stored
  std::int32_t first_block = 0;  ///< index into the request's table
};

/// Leader to members: put these blocks, your shares of them, into your stores. They stay as they
/// are until that is done. Entries `first_block` and on of the request's table: what is stored of
/// it from there on is replaced, what is stored before stays.
struct StoreKv {
  std::uint64_t key = 0;
  std::int32_t first_block = 0;
  std::vector<std::int32_t> blocks;
};

/// Leader to members: fill these blocks with what is stored under that key. It stays stored.
struct RestoreKv {
  std::uint64_t key = 0;
  std::int32_t first_block = 0;  ///< index into the request's table of the first of them
  std::vector<std::int32_t> blocks;
};

/// Leader to members: what is stored under these keys is not needed any more.
struct DropKv {
  std::vector<std::uint64_t> keys;
};

/// Leader to members: what is stored will be needed in this order, the rest after all of it. Takes
/// the place of what was foreseen before.
struct ForeseeKv {
  std::vector<std::uint64_t> keys;
};

/// Member to leader: its share of a MoveKv, StoreKv or RestoreKv is done, or will not be.
struct KvMoved {
  std::uint64_t key = 0;
  std::int32_t complete = 0;
};

/// Verifier to coordinator, first of all: what its group's steps cost, and moves to it.
struct Costs {
  std::uint32_t epoch = 0;  ///< as Status's
  policy::MoveCosts costs;  ///< without drafters
};

/// What drafted for a request last.
struct DraftedFor {
  RequestId id;
  std::int32_t method = 0;  ///< index of the drafter
  float acceptance = 0;     ///< of its drafts for the request
};

/// Verifier to coordinator, whenever something changed and at least every half second while it
/// works.
struct Status {
  std::uint32_t epoch = 0;  ///< of the placement that made it a verifier
  std::int32_t room = 0;    ///< further requests it could take, before leases under way
  std::int32_t active = 0;
  std::int32_t unflushed = 0;  ///< finished, and not on disk yet
  std::int32_t partial = 0;    ///< handed in unfinished, on disk
  std::int32_t kv_room = 0;    ///< blocks that are free beside what leases and renewals are to get
  /// Leases and renewals, in all: tells which of them the room already counts.
  std::uint64_t orders_received = 0;
  std::uint64_t steps = 0;                 ///< run, in all
  std::uint64_t tokens = 0;                ///< response tokens generated, in all
  std::int32_t stopped = 0;                ///< 1: has handed in its unfinished requests
  std::vector<RunningRequest> ended;       ///< since the last status; not all on disk yet
  std::vector<RequestId> finished;         ///< since the last status; on disk
  std::vector<RunningRequest> running;     ///< all it holds
  std::vector<RequestId> ending;           ///< whose leases are about to end; once for a lease
  std::vector<std::uint64_t> moved;        ///< keys of moves that brought it a request
  std::vector<std::uint64_t> kept;         ///< keys of moves that came too late to be made
  std::vector<DraftedFor> drafted;         ///< of those that were drafted for
  std::vector<std::uint64_t> races_begun;  ///< keys of races that it takes part in from now on
  std::vector<std::uint64_t> races_ended;  ///< and of those that it does not, or never did
};

/// Any rank to coordinator: a signal asked this rank to stop.
struct StopRequest {
  std::int32_t rank = 0;  ///< this one: nonsense from a drafter rank is seldom taken for a stop
};

/// Any rank to coordinator, last of all.
struct Summary {
  RankSummary rank;
};

using Message =
    std::variant<Lease, Renew, Stop, Finish, Place, Ready, Move, Race, Returned, Offer, Pull,
                 RaceCommit, Forget, Foresee, Lead, RunStep, MoveKv, StoreKv, RestoreKv, DropKv,
                 ForeseeKv, KvMoved, DraftOpen, DraftCommits, DraftFeatures, Drafts, DraftUpdate,
                 DraftFetch, DraftTexts, DraftWanted, Costs, Status, StopRequest, Summary>;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);
/// The same without a copy of the step.
[[nodiscard]] std::vector<std::byte> encode_step(const engine::Step& step);
/// Throws std::logic_error on bytes that encode() did not make.
[[nodiscard]] Message decode(std::span<const std::byte> bytes);
/// The same of bytes that may be no message: nothing then.
[[nodiscard]] std::optional<Message> decode_if_message(std::span<const std::byte> bytes);

/// Drafts and what they are made from, races and draft servers included. A rank may be sent such
/// for a place that it no longer has, and drops them; nothing else comes late.
[[nodiscard]] bool may_come_late(const Message& message);

}  // namespace paceline::roles
