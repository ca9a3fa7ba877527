// The messages between the roles of a run. Messages of one sender arrive in order; messages of
// several senders arrive in any order.
//
// A lease is for a chunk of a response. When the lease is about to end, the verifier says so
// (Status::ending), and the coordinator renews the lease (Renew) or moves the request elsewhere. A
// request at the end of its lease rests where it is until the coordinator has decided.
//
// A request may also go back to the coordinator (Returned). Its KV then goes into the stores of the
// group's ranks, and the next lease tells its verifier where the KV is. The ranks that stored the
// KV restore it; another group pulls it, as in a move.
//
// A move: the coordinator (Move) has verifier A hand a request to B. A lets the request go after a
// step and keeps its KV in a parcel (Offer, A to B). B tells the coordinator that it has the
// request (Status::moved), or A says that the response had ended before (Status::kept). When B has
// room, it tells A which blocks it wants (Pull). Both leaders command their members (MoveKv), who
// report the end of their shares (KvMoved). A then frees the parcel. If B wants no blocks, it says
// so (DropKv), and A frees the parcel at once.
//
// A race (best-of-N) begins like a move, but A keeps the request. The coordinator (Race) has A
// offer a copy to B, which tells the coordinator that it races (Status::races_begun). If the
// response had ended before, A says so (Status::races_ended). A and B tell each other the tokens
// that they commit (RaceCommit), and the verifier that is behind verifies the other's tokens. Only
// A's response counts. B tells the coordinator when it races no longer.
//
// Work for the next training step: if a verifier is idle, the coordinator sends it requests of that
// step (Pregenerate). The verifier reports how many are done (Pregenerated). They leave the batch
// when a request of this step comes, and are cut short when this step or the role ends.
//
// A change of roles: see RoleChange.
//
// To add a message: add a struct here (or in draft_messages.hpp), its name to Message (before
// Summary), and a row to the table of each receiver: receive(...) in roles/coordinator.cpp,
// verifier.cpp, group.cpp (a group's members; obey() in kv_share.hpp for a command about KV),
// drafter_rank.cpp, spare.cpp, draft_server.cpp and speculation/draft_client.cpp.
// A row also says who may send the message (message_table.hpp), because drafter ranks are not
// trusted. Their messages to a verifier are read by speculation/remote_drafter.cpp instead. All
// fields travel, with exceptions in messages.cpp. Add the message to may_come_late() if it may
// reach a rank in a later role, and to may_precede_drafting() if its sender may be a verifier that
// then becomes a drafter. If it shows that the run goes on, ++changes_ in the coordinator. Test the
// receiver in tests/runtime/roles or speculation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "runtime/core/admission.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/optional_index.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/upcoming_requests.hpp"
#include "runtime/engine/step.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/move_split.hpp"
#include "runtime/policy/schedule/request_table.hpp"
#include "runtime/protocol/draft_messages.hpp"

namespace paceline::protocol {

/// Coordinator to verifier: generate this response, or its next chunk.
struct Lease {
  Admission request;  ///< without the prompt if the group has got it before
  policy::KeptKv kv;  ///< the request's stored KV
};

/// Coordinator to verifier: the lease of this request goes on until its response has `until`
/// tokens. The response may have ended meanwhile.
struct Renew {
  RequestId id;
  std::uint32_t until = 0;
};

/// Coordinator to verifier: hand in unfinished requests after the current step.
struct Stop {};

/// Coordinator to all, and a leader to the members of its group: nothing more will come.
struct Finish {};

/// Coordinator to all ranks concerned, and a leader to the members of its group: the ranks' places
/// from now on. A rank whose own place changes ends its role and takes the new place. A verifier
/// that stays learns its drafters.
struct Place {
  policy::Placement placement;
};

/// Any rank to coordinator: the rank has its place of this epoch, and understands messages for this
/// place. A verifier that stays confirms that it no longer takes drafts from drafters that end.
struct Ready {
  std::uint32_t epoch = 0;
};

/// Coordinator to verifier: hand this request over to another group, or back to the coordinator.
/// The response may have ended meanwhile.
struct Move {
  RequestId id;
  std::uint64_t key = 0;  ///< names the move, and is the new holder's version
  policy::GroupRanks to;  ///< the receiver; with leader kToTable: the coordinator
};

/// Coordinator to verifier: let another group race for this request, unless it has ended.
struct Race {
  RequestId id;
  std::uint64_t key = 0;  ///< names the race; no move has the same key
  policy::GroupRanks to;
  std::int32_t method = 0;  ///< index of the drafter that `to` uses for the request
};

/// Verifier to coordinator: the request goes back to you, with its tokens so far.
struct Returned {
  Trajectory trajectory;
  policy::KeptKv kv;  ///< stored KV; its key is the move's key
};

/// Verifier to verifier: the request is yours, or yours to race for. The sender keeps its KV until
/// it is pulled.
struct Offer {
  Admission request;  ///< with its prompt, and with the receiver's version
  /// KV to pull. Its key is the key of the move or race, and also the receiver's version.
  policy::KeptKv kv;
  OptionalIndex method = {};  ///< Race::method; absent: the offer is a move's
};

/// Between verifiers that race for a request: these tokens of its response are committed.
struct RaceCommit {
  RequestId id;
  std::uint64_t key = 0;  ///< key of the race: commits of earlier races do not count
  std::int32_t base = 0;  ///< response tokens before `tokens`
  std::int32_t over = 0;  ///< 1: the last message of a race: the response ended, or the race did
  std::vector<TokenId> tokens;
};

/// Verifier to verifier, in answer to an offer or for stored KV: send the KV from this block of the
/// request's table on. Earlier KV is computed again, or shared with siblings.
struct Pull {
  std::uint64_t key = 0;
  std::int32_t first_block = 0;
  policy::GroupRanks peer;  ///< the ranks that want the KV (policy::holders()): MoveKv::peer
};

/// Coordinator to verifier, and a leader to the members of its group: nobody will want the KV
/// stored under these keys. Verifier to verifier: the sender does not want the KV kept for it under
/// these keys.
struct DropKv {
  std::vector<std::uint64_t> keys;
};

/// Coordinator to verifier, and a leader to the members of its group: stored KV will be wanted in
/// this order of keys, KV of all other keys later. Replaces the last ForeseeKv.
struct ForeseeKv {
  std::vector<std::uint64_t> keys;
};

/// Coordinator to verifier, while the verifier has nothing to do: begin these requests of the next
/// step (roles/pregeneration.hpp). If the verifier has got work meanwhile, it does this work first.
struct Pregenerate {
  PregeneratedRun run;              ///< the run directory that will keep the results
  std::vector<Admission> requests;  ///< UpcomingRequests::take()
};

/// Leader to members, before all else: from this message on the sender leads their group. Members
/// drop its earlier messages: they are for earlier roles, or from a drafter that is not trusted.
struct Lead {
  std::uint32_t epoch = 0;  ///< epoch of the placement that made the group
};

/// Leader to members: run this step with me.
struct RunStep {
  engine::Step step;
};

/// Leader to members: the owner of the KV in these places is to send all ranks the routed experts
/// of these positions, in a collective.
struct ReadRouting {
  std::vector<kv::Place> places;
};

/// Leader to members: send these blocks to the other group, or fill them with the KV that it sends.
/// Where ranks have the KV of their own requests (kv/block_owners.hpp), only the owner has blocks
/// to transfer: the other ranks' shares are empty, and end at once.
struct MoveKv {
  std::uint64_t key = 0;
  policy::GroupRanks peer;                ///< policy::holders() of the other group
  std::int32_t send = 0;                  ///< 1: send; 0: receive
  std::vector<std::int32_t> blocks = {};  ///< empty if the KV is stored
  /// 1, for a send: the KV is in the stores, not in the KV blocks. It is sent from `first_block`
  /// on, and stays stored.
  std::int32_t stored = 0;
  std::int32_t first_block = 0;  ///< index into the request's table
  OptionalIndex owner = {};      ///< index of the rank whose KV it is; absent: all have a part
};

/// Leader to members: put your shares of these blocks into your stores. The blocks do not change
/// until the operation ends. They are the request's table from entry `first_block` on. Stored
/// blocks from this entry on are replaced, earlier ones stay.
struct StoreKv {
  std::uint64_t key = 0;
  std::int32_t first_block = 0;
  std::vector<std::int32_t> blocks;
};

/// Leader to members: fill these blocks with the KV stored under the key, and keep it stored. If
/// one rank owns the blocks and another stores the KV, the owner gets it from the other rank.
struct RestoreKv {
  std::uint64_t key = 0;
  std::int32_t first_block = 0;  ///< index of the first block in the request's table
  std::vector<std::int32_t> blocks;
  OptionalIndex owner = {};  ///< policy::KeptKv::owner
};

/// Member to leader: the member's share of a MoveKv, StoreKv or RestoreKv has ended.
struct KvMoved {
  std::uint64_t key = 0;
  std::int32_t complete = 0;  ///< 1: all KV was transferred
};

/// Verifier to coordinator, as its first message: costs of its group's steps, and of moves to it.
struct Costs {
  std::uint32_t epoch = 0;  ///< Status::epoch
  policy::MoveCosts costs;  ///< without the costs of drafters
};

/// The drafter that last drafted for a request.
struct DraftedFor {
  RequestId id;
  std::int32_t method = 0;  ///< index of the drafter
  float acceptance = 0;     ///< acceptance of its drafts for the request
};

/// Verifier to coordinator, whenever something changed and at least every half second while it
/// works.
struct Status {
  std::uint32_t epoch = 0;  ///< epoch of the placement that made the rank a verifier
  std::int32_t room = 0;    ///< requests that fit in addition to the requests received
  std::int32_t active = 0;
  std::int32_t unflushed = 0;  ///< finished requests that are not on disk yet
  std::int32_t partial = 0;    ///< unfinished requests that were handed in, on disk
  std::int32_t kv_room = 0;    ///< free KV blocks; orders on their way may still take some
  /// Number of leases and renewals received. `room` and `kv_room` already take these into account.
  std::uint64_t orders_received = 0;
  std::uint64_t steps = 0;                 ///< steps run so far
  std::uint64_t tokens = 0;                ///< response tokens generated so far
  std::int32_t stopped = 0;                ///< 1: unfinished requests have been handed in
  std::vector<RequestLength> ended;        ///< since the last status; not all on disk yet
  std::vector<RequestId> finished;         ///< since the last status; on disk
  std::vector<RequestLength> running;      ///< all requests that the verifier holds
  std::vector<RequestId> ending;           ///< leases that are about to end; each is named once
  std::vector<RequestId> moved;            ///< requests that came to the verifier by a move
  std::vector<RequestId> kept;             ///< requests whose moves came too late to be made
  std::vector<DraftedFor> drafted;         ///< for each request that was drafted for
  std::vector<std::uint64_t> races_begun;  ///< keys of races that the verifier has joined
  std::vector<std::uint64_t> races_ended;  ///< keys of races that the verifier left or never joined
};

/// Verifier to coordinator: the number of requests of Pregenerate that it is done with so far.
struct Pregenerated {
  std::uint64_t requests = 0;
};

/// Any rank to coordinator: a signal asked this rank to stop.
struct StopRequest {
  std::int32_t rank = 0;  ///< the sender's rank; if it is wrong, a drafter's message does not count
};

/// Verifier, or a rank that was one, to coordinator, if rewards decide when the run is over:
/// rewards of responses. They are on disk already. NaN: the response has none, and will have none.
struct Rewarded {
  std::vector<Reward> rewards;
};

/// Any rank to coordinator, as its last message: what the rank did.
struct Summary {
  RankSummary rank;
};

using Message =
    std::variant<Lease, Renew, Stop, Finish, Place, Ready, Move, Race, Returned, Offer, Pull,
                 RaceCommit, DropKv, ForeseeKv, Pregenerate, Lead, RunStep, ReadRouting, MoveKv,
                 StoreKv, RestoreKv, KvMoved, DraftOpen, DraftCommits, DraftFeatures, Drafts,
                 DraftUpdate, DraftFetch, DraftTexts, DraftWanted, EarlierFound, Costs, Status,
                 Pregenerated, StopRequest, Rewarded, Summary>;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);
/// Encodes a RunStep without a copy of the step.
[[nodiscard]] std::vector<std::byte> encode_step(const engine::Step& step);
/// Returns a message of the kind with this index in Message. Its fields have their default values.
[[nodiscard]] Message of_kind(std::size_t kind);
/// Throws std::logic_error on bytes that encode() did not make.
[[nodiscard]] Message decode(std::span<const std::byte> bytes);
/// Decodes bytes that may be no message; returns nothing if they are none.
[[nodiscard]] std::optional<Message> decode_if_message(std::span<const std::byte> bytes);

/// Whether the message is about drafts, races or draft servers. Such a message may arrive after its
/// receiver has changed its place, and is dropped then. No other kind comes late.
[[nodiscard]] bool may_come_late(const Message& message);
/// Whether a drafter rank may have sent the message to a verifier when it was a verifier itself.
[[nodiscard]] bool may_precede_drafting(const Message& message);

}  // namespace paceline::protocol
