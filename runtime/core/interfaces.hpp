// What the runtime asks of the outside: token text, sinks for results, and its neighbours in a
// tensor-parallel group. io and fabric implement these; app joins them. Weights: weight_source.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/speculation_mode.hpp"
#include "runtime/core/types.hpp"

namespace paceline {

/// The bytes each token stands for; tokens may end inside a UTF-8 sequence. Thread-safe.
class TokenText {
 public:
  virtual ~TokenText() = default;
  /// Of a special token its spelling; empty for ids that no token has.
  [[nodiscard]] virtual std::string_view bytes_of(TokenId token) const = 0;
};

/// Where a rank puts responses. Used by one thread.
class TrajectorySink {
 public:
  virtual ~TrajectorySink() = default;
  /// Finished or partial; a later one of the same id replaces an earlier partial one.
  virtual void append(const Trajectory& trajectory) = 0;
  /// After it returns, everything appended survives the death of the process.
  virtual void flush() = 0;
};

/// One engine step of one rank. Times in seconds since the run began.
struct StepRecord {
  double start = 0;
  double duration = 0;
  double draft_duration = 0;      ///< of it, drafting
  double forward_duration = 0;    ///< of it, the forward pass, which verifies drafts
  double sample_duration = 0;     ///< of it, sampling and bookkeeping; the rest is other work
  double sum_duration = 0;        ///< of the forward pass, GroupTraffic::sum_seconds
  double exchange_duration = 0;   ///< of sampling, GroupTraffic::exchange_seconds
  std::uint64_t group_bytes = 0;  ///< GroupTraffic::bytes
  std::uint32_t requests = 0;     ///< requests in the batch
  std::uint32_t prefill_tokens = 0;
  std::uint32_t decode_tokens = 0;  ///< rows of requests past their prompt
  std::uint32_t drafted = 0;        ///< draft tokens verified
  std::uint32_t accepted = 0;       ///< of them, accepted
  std::uint32_t draft_calls = 0;    ///< of draft models and heads, summed over the requests
  std::uint32_t kv_blocks_used = 0;
  std::uint32_t kv_blocks = 0;  ///< in the pool
  std::uint32_t role = 0;       ///< paceline::Role
  std::uint32_t late = 0;       ///< drafts wanted of drafter ranks when none had arrived
  std::uint32_t queued = 0;  ///< messages that wait for their receiver to read others, at its end
  /// Seconds before it in which a drafter rank had drafted all that it may and waited for
  /// verifiers, or a verifier had requests and waited for the KV of all of them.
  double waited = 0;
};

enum class RequestEventKind : std::uint8_t {
  leased = 0,
  finished = 1,
  stopped = 2,
  resumed = 3,
  left = 4,        ///< for another group, or back to the coordinator
  arrived = 5,     ///< from another group
  planned = 6,     ///< it is drafted for in another way from now on
  race_begun = 7,  ///< this rank generates it too, for its holder (best-of-N)
  race_left = 8,   ///< and does so no longer: its holder was first, or the room was wanted
  race_won = 9,    ///< and came to its end before it heard that its holder had
};

struct RequestEvent {
  double time = 0;
  RequestId id;
  RequestEventKind kind = RequestEventKind::leased;
  std::uint32_t tokens = 0;  ///< response tokens so far
  /// Of what is planned alone: how, and the longest draft in tokens.
  SpeculationMode mode = SpeculationMode::plain;
  std::uint32_t window = 0;
  std::int32_t method = -1;  ///< of race_begun alone: index of the drafter that drafts for it here
  FinishReason reason = FinishReason::partial;  ///< of finished alone
};

/// Blocks of KV that went from one rank to another, as one end saw it. Seconds since the run began.
struct TransferRecord {
  double start = 0;       ///< when this end was ready
  double duration = 0;    ///< until all had been moved, or it was given up
  std::uint64_t key = 0;  ///< the move's; the same at both ends
  std::uint64_t bytes = 0;
  std::uint32_t peer = 0;  ///< rank
  std::uint8_t sends = 0;  ///< 1: to the peer; 0: from it
  std::uint8_t complete = 0;
};

/// What a rank did with its part of the KV pool.
enum class KvPoolUse : std::uint8_t {
  stored = 0,
  restored = 1,  ///< to itself
  sent = 2,      ///< to ranks of another group
};

/// KV that a rank put into its part of the KV pool, or took out of it. Seconds since the run began.
struct KvPoolRecord {
  double start = 0;
  double duration = 0;
  std::uint64_t key = 0;           ///< of the command: stored and restored under it, or sent
  std::uint64_t bytes = 0;         ///< of sent: 0 where it was not all there
  std::uint64_t memory_bytes = 0;  ///< in the rank's memory tier at its end
  std::uint64_t disk_bytes = 0;    ///< and in its disk tier
  KvPoolUse use = KvPoolUse::stored;
  std::uint8_t complete = 0;
};

/// Memory that went from a verifier's draft models to its group's KV pool, or back. Seconds since
/// the run began.
struct DraftMemoryRecord {
  enum class Kind : std::uint8_t {
    expanded = 0,    ///< the models were suspended, and the pool grew
    contracted = 1,  ///< the pool shrank
    resumed = 2,     ///< the models are there again, after decoding went on without them
  };
  double start = 0;
  double duration = 0;
  double longest_pause = 0;  ///< of decoding, of those it made
  std::uint32_t blocks = 0;  ///< in the pool after it
  std::uint32_t moved = 0;   ///< blocks that were copied below the pool's new end
  Kind kind = Kind::expanded;
};

/// A draft tree that was grown by all calls of the draft model that there can be, and what would
/// have been accepted of it, had drafting stopped earlier: a point of RADAR's dataset
/// (section 2.2).
struct StopPoint {
  static constexpr int kCalls = 8;    ///< t_max
  static constexpr int kStates = 10;  ///< k, the branching factor
  using Lengths = std::array<std::array<float, kCalls + 1>, kCalls>;
  using Accepted = std::array<std::uint8_t, kCalls>;
  RequestId id;
  std::uint32_t first = 0;  ///< index in the response of the first drafted token
  /// What is known after each call but the last (policy/length/draft_stop.hpp): log-probabilities.
  std::array<std::array<float, kStates>, kCalls - 1> states{};
  /// Row c: how likely 0 ... kCalls drafted tokens are accepted after c + 1 calls, by what the
  /// drafter can know of the target's noise.
  Lengths lengths{};
  Accepted accepted{};  ///< how many would have been, by the noise that there was
};

/// What a rank became. Seconds since the run began.
struct RoleRecord {
  double start = 0;          ///< when it began to take its place: its first one, with the run
  double preparing = 0;      ///< seconds until it could take part
  double loading = 0;        ///< of them, loading weights, those of draft models and heads included
  std::uint32_t role = 0;    ///< paceline::Role
  std::uint32_t epoch = 0;   ///< of the placement
  std::int32_t leader = -1;  ///< of its verifier group; -1: in none
  std::uint32_t tp = 0;      ///< ranks of that group
};

/// What a rank wrote into the output directory. Seconds since the run began.
struct WriteRecord {
  enum class Kind : std::uint8_t {
    trajectories = 0,        ///< into its shard
    telemetry = 1,           ///< likewise
    final_trajectories = 2,  ///< of all ranks, by rank 0
    final_telemetry = 3,     ///< likewise, up to this record itself
  };
  double start = 0;
  double duration = 0;
  Kind kind = Kind::trajectories;
};

/// Draft tokens of one kind, counted over a rank's run; a reader may sum over any of the
/// dimensions.
struct AcceptanceCell {
  std::uint32_t drafter = 0;   ///< index into the rank's drafter names
  std::uint32_t position = 0;  ///< in the draft; 1 follows the last committed token
  std::uint32_t batch = 0;     ///< decoding requests in the step, rounded down to a power of two
  std::uint32_t progress = 0;  ///< response tokens of the request so far, rounded likewise; 0: none
  std::uint64_t drafted = 0;   ///< tokens verified
  std::uint64_t accepted = 0;  ///< of them, accepted
};

/// What a rank reports of itself when it ends. Bytes and seconds are totals over the run.
struct RankSummary {
  std::uint32_t rank = 0;
  std::uint32_t role = 0;    ///< paceline::Role, its last one
  std::int32_t leader = -1;  ///< of the verifier group it was in then; -1: in none
  std::uint32_t tp = 0;      ///< ranks of that group
  double busy_seconds = 0;
  double idle_seconds = 0;
  double loading_seconds = 0;        ///< weights, those loaded in the midst of steps included
  double communication_seconds = 0;  ///< of busy ones: of steps, sum_duration + exchange_duration
  double flush_seconds = 0;          ///< writing its shards so far
  std::uint64_t group_bytes = 0;     ///< as StepRecord
  std::uint64_t steps = 0;
  std::uint64_t prefill_tokens = 0;
  std::uint64_t decode_tokens = 0;  ///< rows, those of drafts included
  std::uint64_t drafted = 0;        ///< draft tokens verified, those said by racers included
  std::uint64_t accepted = 0;       ///< of them, accepted
  std::uint64_t response_tokens = 0;
  std::uint64_t raced = 0;        ///< tokens committed to responses that another group holds
  std::uint64_t foretold = 0;     ///< tokens of its own responses that racers said first
  std::uint64_t wasted = 0;       ///< by a drafter rank: tokens that were refuted, or followed such
  std::uint32_t most_wasted = 0;  ///< of them, by one refutation
  std::uint64_t moved = 0;        ///< requests that left, as RequestEventKind
  std::uint64_t positions_transferred = 0;  ///< of KV that came with requests, or out of a store
  std::uint64_t preempted = 0;              ///< requests that gave way in the middle of a lease
  std::uint64_t recomputed = 0;             ///< positions of responses whose KV was computed again
  std::uint64_t late = 0;     ///< drafts wanted of drafter ranks when none had arrived
  std::uint64_t stale = 0;    ///< tokens from drafter ranks that came too late, or for nothing
  std::uint64_t invalid = 0;  ///< what drafter ranks and servers sent, or were sent, without sense
  // With draft servers, as a verifier.
  std::uint64_t draft_update_bytes = 0;  ///< told to them
  std::uint64_t draft_fetch_bytes = 0;   ///< of their answers
  std::uint64_t draft_fetches = 0;       ///< answers
  std::uint64_t draft_heard = 0;         ///< tokens in them: what it was behind by, summed up
  std::uint64_t draft_most_behind = 0;   ///< tokens, at any one of them
  double draft_fetch_seconds = 0;        ///< from asking for them until they were read
  double waited_seconds = 0;             ///< as StepRecord::waited
  std::uint64_t transfers_sent = 0;      ///< complete ones
  std::uint64_t transfers_received = 0;
  std::uint64_t transfers_failed = 0;
  std::uint64_t transfer_bytes_sent = 0;
  std::uint64_t transfer_bytes_received = 0;
  std::uint64_t pool_stored_bytes = 0;    ///< put into its part of the KV pool
  std::uint64_t pool_memory_bytes = 0;    ///< taken out of its memory tier, for itself or others
  std::uint64_t pool_foreseen_bytes = 0;  ///< of them, that had come up from disk before
  std::uint64_t pool_disk_bytes = 0;      ///< taken out of its disk tier when they were wanted
  std::uint64_t pool_down_bytes = 0;      ///< that went down to disk
  std::uint64_t pool_up_bytes = 0;        ///< that came up before they were wanted
  std::uint64_t pool_most_memory = 0;     ///< bytes in its memory tier at one time
  std::uint64_t pool_most_disk = 0;       ///< and in its disk tier
  std::uint64_t pool_lost = 0;            ///< requests' KV for which neither had room
  std::uint64_t pool_damaged = 0;         ///< blocks that were not what had been put
  double pool_storing_seconds = 0;        ///< summed over what was stored
  double pool_restoring_seconds = 0;      ///< and over what was restored to itself
  std::uint64_t messages_sent = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t message_stalls = 0;  ///< times that a receiver was far behind
  std::uint64_t most_queued = 0;     ///< messages that waited for receivers at one time
  std::uint64_t peak_rss_bytes = 0;  ///< without what are others' parts of the next
  std::uint64_t weight_bytes = 0;    ///< packed; of copies that ranks have in common, its own part
  std::uint64_t kv_bytes = 0;
};

/// Where a rank puts what it measured. Used by one thread.
class TelemetrySink {
 public:
  virtual ~TelemetrySink() = default;
  virtual void step(const StepRecord& record) = 0;
  virtual void event(const RequestEvent& event) = 0;
  virtual void transfer(const TransferRecord& record) = 0;
  virtual void pool(const KvPoolRecord& record) = 0;
  virtual void draft_memory(const DraftMemoryRecord& record) = 0;
  virtual void stop_point(const StopPoint& point) = 0;
  /// When a role of the rank ends, be it by a stop: all cells it counted, in any order.
  virtual void acceptance(std::span<const AcceptanceCell> cells) = 0;
  /// Whenever the rank has become something.
  virtual void role(const RoleRecord& record) = 0;
  /// Once, when the rank ends (or stops).
  virtual void summary(const RankSummary& summary) = 0;
  virtual void flush() = 0;
};

/// What the ranks of a tensor-parallel group told each other, as one of them saw it: seconds that
/// it spent in collectives, waiting for the others included, and what it sent. What a device does
/// by itself (NCCL) is part of its forward pass, and not in here.
struct GroupTraffic {
  double sum_seconds = 0;       ///< in all_reduce_tree(), which is of forward passes
  double exchange_seconds = 0;  ///< in exchange_rows() and all_gather(), which are of sampling
  std::uint64_t bytes = 0;      ///< in all of them
};
[[nodiscard]] inline GroupTraffic operator-(const GroupTraffic& a, const GroupTraffic& b) {
  return {a.sum_seconds - b.sum_seconds, a.exchange_seconds - b.exchange_seconds,
          a.bytes - b.bytes};
}

/// The ranks of one tensor-parallel group. Every member calls the same operations in the same
/// order. all_reduce_tree() and exchange_rows() work on memory of the backend that the group was
/// made for, after what the backend was given before and before what it is given next; all_gather()
/// on host memory, and returns when its result is there. Used by one thread.
class TensorParallelGroup {
 public:
  virtual ~TensorParallelGroup() = default;
  [[nodiscard]] virtual int rank() const = 0;  ///< 0 is the leader
  [[nodiscard]] virtual int size() const = 0;  ///< a power of two

  /// Sums `values` over the ranks in the canonical binary tree: neighbours first, then pairs of
  /// pairs, so that t ranks holding one sub-tree each complete the tree one rank would compute.
  virtual void all_reduce_tree(std::span<float> values) = 0;
  /// all_reduce_tree() leaves all of its work to the backend's device, so that a pass it is part of
  /// can be recorded and replayed without a word to the group.
  [[nodiscard]] virtual bool recordable() const { return true; }
  /// Row exchange for sampling: rank r receives, for each of its rows, every rank's columns.
  /// `send`: [rows, columns] of this rank; rows of rank r are [first_row[r], first_row[r+1]).
  /// `receive`: [my rows, sum of columns], columns in rank order. columns[r] may differ by rank.
  virtual void exchange_rows(std::span<const float> send, std::span<const int> columns,
                             std::span<const int> first_row, std::span<float> receive) = 0;
  /// Concatenates every rank's bytes in rank order; sizes[r] bytes come from rank r.
  virtual void all_gather(std::span<const std::byte> mine, std::span<const int> sizes,
                          std::span<std::byte> all) = 0;
  /// So far, of what has come to its end. A group of one has none.
  [[nodiscard]] virtual GroupTraffic traffic() const { return {}; }
};

}  // namespace paceline
