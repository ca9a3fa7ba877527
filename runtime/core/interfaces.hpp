// Interfaces of the runtime to the outside: token text, sinks for results, and neighbours in a
// tensor-parallel group. io and fabric implement them; app joins them. Weights: weight_source.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/core/error.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/speculation_mode.hpp"
#include "runtime/core/types.hpp"

namespace paceline {

/// The bytes of tokens, which may end inside a UTF-8 sequence. Thread-safe.
class TokenText {
 public:
  virtual ~TokenText() = default;
  /// The token's bytes. For a special token its spelling; empty for ids that no token has.
  [[nodiscard]] virtual std::string_view bytes_of(TokenId token) const = 0;
};

/// Destination of a rank's responses. Used by one thread.
class TrajectorySink {
 public:
  virtual ~TrajectorySink() = default;
  /// Appends a finished or partial response. It replaces an earlier partial one of the same id.
  virtual void append(const Trajectory& trajectory) = 0;
  /// Flushes: everything appended before survives the death of the process.
  virtual void flush() = 0;
};

/// One engine step of one rank. Times in seconds since the run began.
struct StepRecord {
  double start = 0;
  double duration = 0;
  double draft_duration = 0;      ///< part of `duration`: drafting
  double forward_duration = 0;    ///< part of `duration`: the forward pass, which verifies drafts
  double sample_duration = 0;     ///< part of `duration`: sampling and bookkeeping
  double picture_duration = 0;    ///< part of `duration`: computing the rows of pictures
  double sum_duration = 0;        ///< part of the forward pass: GroupTraffic::sum_seconds
  double exchange_duration = 0;   ///< part of sampling: GroupTraffic::exchange_seconds
  std::uint64_t group_bytes = 0;  ///< GroupTraffic::bytes
  std::uint32_t requests = 0;     ///< requests in the batch
  std::uint32_t prefill_tokens = 0;
  std::uint32_t decode_tokens = 0;  ///< rows of requests past their prompt
  std::uint32_t pictures = 0;       ///< pictures whose rows were computed
  std::uint32_t drafted = 0;        ///< draft tokens verified
  std::uint32_t accepted = 0;       ///< accepted tokens among `drafted`
  std::uint32_t draft_calls = 0;    ///< calls of draft models and heads, summed over the requests
  std::uint32_t kv_blocks_used = 0;
  std::uint32_t kv_blocks = 0;  ///< blocks in the pool
  std::uint32_t role = 0;       ///< paceline::Role
  std::uint32_t late = 0;       ///< drafts asked of drafter ranks when none had arrived
  std::uint32_t queued = 0;     ///< messages that wait for a slow receiver at the step's end
  /// Seconds before the step in which a drafter rank that had drafted all it may waited for
  /// verifiers, or a verifier waited for the KV of all its requests.
  double waited = 0;
};

enum class RequestEventKind : std::uint8_t {
  leased = 0,
  finished = 1,
  stopped = 2,
  resumed = 3,
  left = 4,        ///< the request left for another group, or for the coordinator
  arrived = 5,     ///< the request came from another group
  race_begun = 6,  ///< this rank generates the response too, for its holder (best-of-N)
  race_left = 7,   ///< this rank gave up the race: the holder was first, or the room was needed
  race_won = 8,    ///< this rank ended the response before it heard of the holder's end
  turn_ended = 9,  ///< the conversation waits for an answer
  answered = 10,   ///< the answer has come, and the response goes on
};

struct RequestEvent {
  double time = 0;
  RequestId id;
  RequestEventKind kind = RequestEventKind::leased;
  std::uint32_t tokens = 0;  ///< response tokens so far
  std::int32_t method = -1;  ///< only for race_begun: index of the drafter for it here
  FinishReason reason = FinishReason::partial;  ///< only for finished
};

/// Transfer of KV blocks between ranks, at one end. Seconds since the run began.
struct TransferRecord {
  double start = 0;       ///< time at which this end was ready
  double duration = 0;    ///< until all blocks were moved, or the transfer was given up
  std::uint64_t key = 0;  ///< key of the move, the same at both ends
  std::uint64_t bytes = 0;
  std::uint32_t peer = 0;  ///< rank
  std::uint8_t sends = 0;  ///< 1: to the peer; 0: from it
  std::uint8_t complete = 0;
};

/// Uses of a rank's part of the KV pool.
enum class KvPoolUse : std::uint8_t {
  stored = 0,
  restored = 1,  ///< to the rank itself
  sent = 2,      ///< to ranks of another group
};

/// KV put into a rank's part of the KV pool, or taken out of it. Seconds since the run began.
struct KvPoolRecord {
  double start = 0;
  double duration = 0;
  std::uint64_t key = 0;           ///< key of the store, restore or send
  std::uint64_t bytes = 0;         ///< for a send: 0 if not all of the KV was there
  std::uint64_t memory_bytes = 0;  ///< in the rank's memory tier at the end
  std::uint64_t disk_bytes = 0;    ///< in the rank's disk tier at the end
  KvPoolUse use = KvPoolUse::stored;
  std::uint8_t complete = 0;
};

/// Memory moved from a verifier's draft models to its group's KV pool, or back. Seconds since the
/// run began.
struct DraftMemoryRecord {
  enum class Kind : std::uint8_t {
    expanded = 0,    ///< the models were suspended, and the pool grew
    contracted = 1,  ///< the pool shrank
    resumed = 2,     ///< the models are loaded again, after decoding went on without them
  };
  double start = 0;
  double duration = 0;
  double longest_pause = 0;  ///< longest pause of decoding that the change caused
  std::uint32_t blocks = 0;  ///< blocks in the pool after the change
  std::uint32_t moved = 0;   ///< blocks that were copied to places before the pool's new end
  Kind kind = Kind::expanded;
};

/// A point of RADAR's dataset (section 2.2): a draft tree of the most calls of the draft model, and
/// the tokens that would have been accepted if drafting had stopped earlier.
struct StopPoint {
  static constexpr int kCalls = 8;    ///< t_max
  static constexpr int kStates = 10;  ///< k, the branching factor
  using Lengths = std::array<std::array<float, kCalls + 1>, kCalls>;
  using Accepted = std::array<std::uint8_t, kCalls>;
  RequestId id;
  std::uint32_t first = 0;  ///< index in the response of the first drafted token
  /// Confidences after each call but the last (policy/length/draft_stop.hpp): log-probabilities.
  std::array<std::array<float, kStates>, kCalls - 1> states{};
  /// Row c: probabilities that 0 ... kCalls drafted tokens are accepted after c + 1 calls. If the
  /// drafter knows the target's noise, they are 0 or 1.
  Lengths lengths{};
  Accepted accepted{};  ///< tokens accepted after each number of calls, with the actual noise
};

/// A rank's change of role. Seconds since the run began.
struct RoleRecord {
  double start = 0;          ///< time at which the change began; the first begins with the run
  double preparing = 0;      ///< seconds until the rank could take part
  double loading = 0;        ///< part of `preparing`: loading all weights, draft models' included
  std::uint32_t role = 0;    ///< paceline::Role
  std::uint32_t epoch = 0;   ///< epoch of the placement
  std::int32_t leader = -1;  ///< leader of the rank's verifier group; -1: it is in no group
  std::uint32_t tp = 0;      ///< ranks of this group
};

/// A write of a rank into the output directory. Seconds since the run began.
struct WriteRecord {
  enum class Kind : std::uint8_t {
    trajectories = 0,        ///< into the rank's shard
    telemetry = 1,           ///< into the rank's shard
    final_trajectories = 2,  ///< those of all ranks, by rank 0
    final_telemetry = 3,     ///< that of all ranks, by rank 0, up to this record itself
  };
  double start = 0;
  double duration = 0;
  Kind kind = Kind::trajectories;
};

/// Counts of draft tokens of one kind over a rank's run. A reader may sum over any dimension.
struct AcceptanceCell {
  std::uint32_t drafter = 0;   ///< index into the rank's drafter names
  std::uint32_t position = 0;  ///< position in the draft; 1 follows the last committed token
  std::uint32_t batch = 0;     ///< decoding requests in the step, rounded down to a power of two
  std::uint32_t progress = 0;  ///< response tokens so far, rounded down like `batch`; 0: none
  std::uint64_t drafted = 0;   ///< tokens verified
  std::uint64_t accepted = 0;  ///< accepted tokens among `drafted`
};

/// Summary of a rank at its end. Bytes and seconds are totals over the run.
struct RankSummary {
  std::uint32_t rank = 0;
  std::uint32_t role = 0;    ///< paceline::Role, the last one
  std::int32_t leader = -1;  ///< leader of its verifier group at the end; -1: it was in none then
  std::uint32_t tp = 0;      ///< ranks of this group
  double busy_seconds = 0;
  double idle_seconds = 0;
  double loading_seconds = 0;        ///< loading weights, during steps too
  double communication_seconds = 0;  ///< part of busy: sum_duration + exchange_duration of steps
  double flush_seconds = 0;          ///< writing the rank's shards
  double picture_seconds = 0;        ///< part of busy: computing the rows of pictures
  std::uint64_t group_bytes = 0;     ///< sum of StepRecord::group_bytes
  std::uint64_t steps = 0;
  std::uint64_t prefill_tokens = 0;
  std::uint64_t decode_tokens = 0;  ///< rows, drafts' included
  std::uint64_t pictures = 0;       ///< times that a verifier had a picture's rows computed
  std::uint64_t drafted = 0;        ///< draft tokens verified, racers' tokens included
  std::uint64_t accepted = 0;       ///< accepted tokens among `drafted`
  std::uint64_t response_tokens = 0;
  std::uint64_t raced = 0;           ///< tokens committed to responses that another group holds
  std::uint64_t foretold = 0;        ///< tokens of its own responses that racers committed first
  std::uint64_t pregenerated = 0;    ///< tokens generated for the next step's drafts
  double pregenerating_seconds = 0;  ///< part of idle: generating them
  std::uint64_t wasted = 0;  ///< drafter rank: tokens that were refuted, or followed refuted ones
  std::uint32_t most_wasted = 0;  ///< most tokens wasted by one refutation
  double outcome_seconds = 0;     ///< part of busy: drafting only for outcomes
  std::uint64_t moved = 0;        ///< requests that left (RequestEventKind::left)
  std::uint64_t positions_transferred =
      0;                            ///< positions whose KV came with requests or from stores
  std::uint64_t preempted = 0;      ///< requests preempted in the middle of a lease
  std::uint64_t recomputed = 0;     ///< positions of responses whose KV was computed again
  std::uint64_t prefix_shared = 0;  ///< positions of prompts whose KV was another prompt's
  std::uint64_t late = 0;           ///< drafts asked of drafter ranks when none had arrived
  std::uint64_t stale = 0;          ///< tokens from drafter ranks that came too late, or in vain
  std::uint64_t foreseen = 0;  ///< refuted drafts of drafter ranks after which a branch was there
  std::uint64_t invalid = 0;   ///< invalid messages from, or to, drafter ranks and servers
  // Draft servers, as a verifier uses them.
  std::uint64_t draft_update_bytes = 0;  ///< sent to draft servers
  std::uint64_t draft_fetch_bytes = 0;   ///< bytes of draft servers' answers
  std::uint64_t draft_fetches = 0;       ///< number of answers
  std::uint64_t draft_heard = 0;         ///< tokens in the answers, the verifier's lag in all
  std::uint64_t draft_most_behind = 0;   ///< largest lag at one answer, tokens
  double draft_fetch_seconds = 0;        ///< from asking for answers until they were read
  double waited_seconds = 0;             ///< sum of StepRecord::waited
  std::uint64_t transfers_sent = 0;      ///< complete ones
  std::uint64_t transfers_received = 0;
  std::uint64_t transfers_failed = 0;
  std::uint64_t transfer_bytes_sent = 0;
  std::uint64_t transfer_bytes_received = 0;
  std::uint64_t pool_stored_bytes = 0;    ///< put into the rank's part of the KV pool
  std::uint64_t pool_memory_bytes = 0;    ///< taken out of its memory tier, for itself or others
  std::uint64_t pool_foreseen_bytes = 0;  ///< part of these that had come up from disk in time
  std::uint64_t pool_disk_bytes = 0;      ///< taken out of its disk tier on demand
  std::uint64_t pool_down_bytes = 0;      ///< moved down to disk
  std::uint64_t pool_up_bytes = 0;        ///< moved up ahead of demand
  std::uint64_t pool_most_memory = 0;     ///< most bytes in its memory tier at one time
  std::uint64_t pool_most_disk = 0;       ///< most bytes in its disk tier at one time
  std::uint64_t pool_lost = 0;            ///< requests' KV for which neither tier had room
  std::uint64_t pool_damaged = 0;         ///< blocks that came back damaged
  double pool_storing_seconds = 0;        ///< summed over stores
  double pool_restoring_seconds = 0;      ///< summed over restores to the rank itself
  std::uint64_t messages_sent = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t message_stalls = 0;  ///< times that a receiver was far behind
  std::uint64_t most_queued = 0;     ///< most messages that waited for receivers at one time
  std::uint64_t peak_rss_bytes = 0;  ///< without other ranks' parts of shared weights
  std::uint64_t weight_bytes = 0;    ///< packed weights; only the rank's own part of shared copies
  std::uint64_t kv_bytes = 0;
};

/// Destination of a rank's measurements. Used by one thread.
class TelemetrySink {
 public:
  virtual ~TelemetrySink() = default;
  virtual void step(const StepRecord& record) = 0;
  virtual void event(const RequestEvent& event) = 0;
  virtual void transfer(const TransferRecord& record) = 0;
  virtual void pool(const KvPoolRecord& record) = 0;
  virtual void draft_memory(const DraftMemoryRecord& record) = 0;
  virtual void stop_point(const StopPoint& point) = 0;
  /// Called when a role of the rank ends or is stopped, with all cells it counted, in any order.
  virtual void acceptance(std::span<const AcceptanceCell> cells) = 0;
  /// Called whenever the rank has changed its role.
  virtual void role(const RoleRecord& record) = 0;
  /// Called once, when the rank ends (or stops).
  virtual void summary(const RankSummary& summary) = 0;
  virtual void flush() = 0;
};

/// Traffic of a tensor-parallel group, at one rank: seconds in collectives, waiting for others
/// included, and bytes sent. A device's own collectives (NCCL) are part of its forward pass, and do
/// not count here.
struct GroupTraffic {
  double sum_seconds = 0;       ///< in all_reduce_tree() and gather_rows(), part of forward passes
  double exchange_seconds = 0;  ///< in exchange_rows() and all_gather(), part of sampling
  std::uint64_t bytes = 0;      ///< bytes sent in all four
};
[[nodiscard]] inline GroupTraffic operator-(const GroupTraffic& a, const GroupTraffic& b) {
  return {a.sum_seconds - b.sum_seconds, a.exchange_seconds - b.exchange_seconds,
          a.bytes - b.bytes};
}

/// The ranks of one tensor-parallel group. Every member calls the same operations in the same
/// order. all_reduce_tree(), gather_rows() and exchange_rows() work on memory of the group's
/// backend, in the order of its operations. all_gather() works on host memory, and returns when its
/// result is there. Used by one thread.
class TensorParallelGroup {
 public:
  virtual ~TensorParallelGroup() = default;
  [[nodiscard]] virtual int rank() const = 0;  ///< 0 is the leader
  [[nodiscard]] virtual int size() const = 0;  ///< a power of two

  /// An all-reduce: sums `values` over the ranks in the canonical binary tree, neighbours first,
  /// then pairs of pairs. So t ranks with one sub-tree each complete the tree of a single rank.
  virtual void all_reduce_tree(std::span<float> values) = 0;
  /// Whether all_reduce_tree() leaves all of its work to the backend's device, so that a pass with
  /// it can be captured (as a CUDA graph) and replayed without the group.
  [[nodiscard]] virtual bool recordable() const { return true; }
  /// Gives every rank all rows, which the ranks have computed apart. `rows`: [first_row[size()],
  /// width]. Rank r has computed rows [first_row[r], first_row[r + 1]), maybe none, and gets the
  /// others. A group that has no such operation throws Error (internal).
  virtual void gather_rows(std::span<float> /*rows*/, std::span<const int> /*first_row*/) {
    throw Error(ExitCode::internal, "a group of devices that is to gather rows");
  }
  /// Row exchange for sampling: rank r receives, for each of its rows, every rank's columns.
  /// `send`: [rows, columns[rank()]]; rows of rank r are [first_row[r], first_row[r + 1]).
  /// `receive`: [my rows, sum of columns], columns in rank order. columns[r] may differ by rank.
  virtual void exchange_rows(std::span<const float> send, std::span<const int> columns,
                             std::span<const int> first_row, std::span<float> receive) = 0;
  /// Concatenates every rank's bytes in rank order; sizes[r] bytes come from rank r.
  virtual void all_gather(std::span<const std::byte> mine, std::span<const int> sizes,
                          std::span<std::byte> all) = 0;
  /// Totals of finished operations. A group of one rank has no traffic.
  [[nodiscard]] virtual GroupTraffic traffic() const { return {}; }
};

}  // namespace paceline
