// What the roles of a run say to each other.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/step.hpp"
#include "runtime/roles/draft_messages.hpp"

namespace paceline::roles {

/// Coordinator to verifier: generate this response.
struct Lease {
  Trajectory trajectory;        ///< id, and what it already has when it goes on
  std::vector<TokenId> prompt;  ///< empty: the group was sent it before
  NoiseKey noise;
};

/// Coordinator to verifier: hand in what is unfinished after the current step.
struct Stop {};

/// Coordinator to all, and a leader to the members of its group: nothing more will come.
struct Finish {};

/// The ranks of a verifier group: neighbours, the leader first.
struct GroupRanks {
  std::int32_t leader = 0;
  std::int32_t tp = 1;
};

/// Coordinator to verifier: hand this request over to another group. It may have ended meanwhile.
struct Move {
  RequestId id;
  std::uint64_t key = 0;  ///< names the move: the n-th of the run
  GroupRanks to;
};

/// Verifier to verifier: the request is yours. Its KV stays where it was until pulled.
struct Offer {
  Lease lease;  ///< with its prompt
  std::uint64_t key = 0;
  GroupRanks from;
  std::int32_t positions = 0;  ///< whose KV there is
};

/// In answer: KV from this block of the request's table on is wanted. The rest is computed again.
struct Pull {
  std::uint64_t key = 0;
  std::int32_t first_block = 0;  ///< past the last: none is wanted
};

/// Leader to members: carry this out with me.
struct RunStep {
  engine::Step step;
};

/// Leader to members: send these blocks to the other group, or fill them with what it sends.
struct MoveKv {
  std::uint64_t key = 0;
  GroupRanks peer;
  std::int32_t send = 0;  ///< 1: send; 0: receive
  std::vector<std::int32_t> blocks;
};

/// Member to leader: its share of that is done, or will not be.
struct KvMoved {
  std::uint64_t key = 0;
  std::int32_t complete = 0;
};

/// Verifier to coordinator, whenever something changed and at least every half second while it
/// works.
struct Status {
  std::int32_t room = 0;  ///< further requests it could take, before leases under way
  std::int32_t active = 0;
  std::int32_t unflushed = 0;            ///< finished, and not on disk yet
  std::int32_t partial = 0;              ///< handed in unfinished, on disk
  std::uint64_t leases_received = 0;     ///< in all: tells which leases `room` already counts
  std::uint64_t tokens = 0;              ///< response tokens generated, in all
  std::int32_t stopped = 0;              ///< 1: has handed in its unfinished requests
  std::vector<RequestId> finished;       ///< since the last status; on disk
  std::vector<engine::Running> running;  ///< all it holds; now and then
  std::vector<std::uint64_t> moved;      ///< keys of moves that brought it a request
  std::vector<std::uint64_t> kept;       ///< keys of moves that came too late to be made
};

/// Any rank to coordinator: a signal asked this rank to stop.
struct StopRequest {};

/// Any rank to coordinator, last of all.
struct Summary {
  RankSummary rank;
};

using Message = std::variant<Lease, Stop, Finish, Move, Offer, Pull, RunStep, MoveKv, KvMoved,
                             DraftOpen, DraftCommits, Drafts, Status, StopRequest, Summary>;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);
/// The same without a copy of the step.
[[nodiscard]] std::vector<std::byte> encode_step(const engine::Step& step);
/// Throws std::logic_error on bytes that encode() did not make.
[[nodiscard]] Message decode(std::span<const std::byte> bytes);

}  // namespace paceline::roles
