// Continuous batching on a verifier group: chooses the requests that run, the blocks of their KV
// and the rows of the next step. Bookkeeping only; a StepRunner does the arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/admission.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/optional_index.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/engine/draft_tree.hpp"
#include "runtime/engine/picture_slots.hpp"
#include "runtime/engine/step.hpp"
#include "runtime/engine/stop_matcher.hpp"
#include "runtime/kv/owned_sequences.hpp"

namespace paceline::engine {

struct BatcherLimits {
  std::int32_t max_batch = 64;       ///< requests that run at once
  std::int32_t prefill_chunk = 256;  ///< prompt tokens in a step
  std::int32_t kv_block = 16;        ///< positions per block
  std::int32_t kv_blocks = 0;        ///< blocks in the pool of each owner
  /// Number of ranks that have the KV of their own requests (kv/block_owners.hpp); 1: every rank
  /// has a part of all KV.
  std::int32_t owners = 1;
  std::int32_t context = 0;  ///< longest sequence the model takes, prompt and response
  /// Positions by which a request's room grows at a time; 0: room for its whole lease at once.
  std::int32_t growth = 0;
  /// Most tokens of a turn in conversations. A response whose turn ends stays in the batch until it
  /// is taken out. 0: responses are of one turn, and end with it.
  std::int32_t turn_tokens = 0;
  /// Prompts that begin alike share the KV of their common beginning.
  bool share_prefixes = true;
  /// Patches along each side that are merged into a picture's row; 0: no prompt has pictures.
  std::int32_t picture_merge = 0;
  std::int64_t picture_rows = 0;  ///< most rows of pictures that are kept (PictureSlots)
};

/// Positions of a request whose KV comes from elsewhere: [first, end).
struct Arrival {
  std::int32_t first = 0;
  std::int32_t end = 0;
};

/// A request that leaves or is copied, and the blocks with its KV, to be released after sending.
struct Departure {
  Admission request;
  kv::Parcel parcel;
};

/// A request whose part of the next step is one decoding row, after which a draft can follow.
struct Decoding {
  RequestId id;
  std::int32_t response = 0;      ///< response tokens so far
  std::int32_t context = 0;       ///< tokens of prompt and response so far
  std::int32_t most_drafted = 0;  ///< most tokens that a draft may have
};

/// Tokens that a step committed to a request.
struct Committed {
  RequestId id;
  std::int32_t decoding = -1;       ///< index into decoding(); -1: the request ended its prefill
  std::span<const TokenId> tokens;  ///< [>= 1]
  /// Indices of accepted tokens in the draft: these are all `tokens` but the last, or all `tokens`
  /// if a drafted token ended the response.
  std::span<const std::int32_t> path;
  bool finished = false;
};

/// Positions of a request that a step computed: positions of the text before the step, and of
/// accepted draft tokens. The request goes on after the step.
struct Computed {
  RequestId id;
  std::int32_t first_position = 0;
  std::span<const std::int32_t> rows;  ///< [>= 1] step's rows: entry i is at first_position + i
};

/// Counters of the step last planned, for telemetry.
struct StepCounts {
  std::uint32_t requests = 0;
  std::uint32_t prefill_tokens = 0;
  std::uint32_t decode_tokens = 0;  ///< rows of requests past their prompt, draft rows included
  std::uint32_t drafted = 0;        ///< draft rows
  std::uint32_t recomputed = 0;     ///< prefill tokens of responses, except a new answer's tokens
  std::uint32_t shared = 0;         ///< positions taken over from other prompts since the last step
  std::uint32_t pictures = 0;       ///< pictures whose rows are computed
};

/// Requests of one verifier group. A request is admitted when the pool has room for its whole
/// lease, and no step takes it past the end of the lease: there it rests, keeping its KV, until the
/// lease is renewed.
///
/// With `growth` a request's room grows in small steps instead. If the pool is then too full, the
/// request that came last is parked (preempted): it leaves the batch with its tokens, and its KV is
/// computed again when it comes back. So the first request always makes progress. Without growth,
/// requests are parked only if all of them rest, and there is no room to renew any lease.
///
/// With several owners each request has one owner from its admission on, and all this holds for
/// each owner's requests separately. Rows of a step are in order of their owners.
/// Not thread-safe.
class Batcher {
 public:
  /// `sampling`, `stops` (all ids that end a response): for requests without their own. `text`: may
  /// be null if there are no stop strings.
  Batcher(const BatcherLimits& limits, const SamplingParams& sampling, std::vector<TokenId> stops,
          const TokenText* text);

  /// Takes the request in if a slot and blocks for it are free; otherwise returns false and leaves
  /// it unchanged. `owner`: the owner that has its KV, and is tried first. Absent: no owner has it,
  /// and owners that know the prompt come first, but none gets far more requests than others.
  bool admit(Admission& request, OptionalIndex owner = {});
  [[nodiscard]] std::int32_t active() const { return static_cast<std::int32_t>(requests_.size()); }
  [[nodiscard]] std::int32_t blocks_used() const { return kv_.blocks_used(); }
  /// Blocks that are free, or are freed when they are needed.
  [[nodiscard]] std::int32_t blocks_free() const {
    return kv_.blocks() - kv_.blocks_used() + kv_.blocks_idle();
  }
  [[nodiscard]] std::int32_t blocks() const { return kv_.blocks(); }
  /// Resizes each owner's KV pool to `blocks` blocks, as part of the next kv_work() or step. Not to
  /// be called between plan() and commit(); kv_work() must be done. Returns false and changes
  /// nothing if more blocks are in use than would be left, or a block past the new end is in
  /// flight.
  [[nodiscard]] bool resize(std::int32_t blocks);
  /// Requests that were parked since the last call, in order of their arrival.
  [[nodiscard]] std::vector<Admission> take_parked() { return std::exchange(parked_, {}); }

  /// Requests whose turns ended in the last commit(). The caller must leave() them before any other
  /// call. finish_reason of each says why its turn ended. None where responses are of one turn.
  [[nodiscard]] std::vector<RequestId> take_turns() { return std::exchange(turns_over_, {}); }

  /// Requests whose leases end within `tokens` tokens, or have ended. Each is named once per lease.
  [[nodiscard]] std::vector<RequestId> ending(std::uint32_t tokens);
  /// Renews the lease of a request in the batch up to response length `until`, once there is room.
  void renew(RequestId id, std::uint32_t until);

  [[nodiscard]] bool runs(RequestId id) const;
  [[nodiscard]] std::vector<RequestLength> running() const;

  /// The block table of a running request, for KV that arrives.
  [[nodiscard]] std::vector<std::int32_t> table(RequestId id) const;
  /// The owner of a running request's KV; absent where there is but one.
  [[nodiscard]] OptionalIndex owner(RequestId id) const {
    return kv_.owners() == 1 ? OptionalIndex() : owner(at(id));
  }
  /// The owner of a parcel's blocks; absent where there is but one, or no block.
  [[nodiscard]] OptionalIndex owner(const kv::Parcel& parcel) const {
    if (kv_.owners() == 1 || parcel.blocks.empty()) return {};
    return kv_.owner_of(parcel.blocks.front());
  }
  /// First position from which on the request's KV may come from elsewhere; a multiple of kv_block.
  [[nodiscard]] std::int32_t own_from(RequestId id) const;
  /// Expects a part of the request's KV, which is on its way to its blocks. `arrival.first`: a
  /// multiple of kv_block, >= own_from(id). Earlier positions are computed meanwhile; later ones
  /// wait for arrived().
  void expect(RequestId id, const Arrival& arrival);
  /// Whether some of the request's KV is still expected.
  [[nodiscard]] bool expects(RequestId id);
  /// Ends expect(): the KV has arrived if `complete`; otherwise it is computed here.
  void arrived(RequestId id, bool complete);
  /// A step without rows, to do the pending work on KV now instead of with the next step.
  [[nodiscard]] const Step& kv_work();
  /// Takes a request out of the batch, not between plan() and commit(). kv_work() must be done. A
  /// request whose prompt is incomplete hands the prompt over to a sibling, which is new work.
  [[nodiscard]] Departure leave(RequestId id);
  /// Copies a request that goes on here, with the full blocks of its KV. Needs the same as leave().
  [[nodiscard]] Departure copy(RequestId id);
  void release(const kv::Parcel& parcel) { kv_.release(parcel); }

  /// The requests that decode in the next step, in its order. Valid until the next call.
  [[nodiscard]] std::span<const Decoding> decoding();
  /// Most prompt rows that the next step can have, as counted by decoding().
  [[nodiscard]] std::int32_t prefill_rows() const { return prefill_rows_; }
  /// The next step: one row for every decoding request, and up to prefill_chunk rows of prompts in
  /// order of arrival. Empty when nothing runs. Every plan must be committed. `drafts`: empty, or a
  /// draft (which may be empty) for each of decoding(), to be verified in the same step.
  [[nodiscard]] const Step& plan(std::span<const DraftTree> drafts = {});
  [[nodiscard]] const StepCounts& counts() const { return counts_; }
  /// Takes the tokens sampled for the plan, and returns the responses that ended, in batch order.
  /// Along each draft the tokens equal to the target's own are committed, and one token more.
  /// Samples after the plan's own are let be.
  [[nodiscard]] std::vector<Trajectory> commit(const StepResult& result);
  /// Places of the KV of each response that the last commit() ended, from first_routed() on; empty
  /// where routed experts are not kept. Valid until the next step runs.
  [[nodiscard]] std::span<const std::vector<kv::Place>> routed_places() const {
    return routed_places_;
  }
  /// Tokens that the last commit() committed, in batch order. Valid until the next commit().
  [[nodiscard]] std::span<const Committed> committed() const { return committed_; }
  /// Positions that the last committed step computed, in batch order. Valid until the next
  /// commit().
  [[nodiscard]] std::span<const Computed> computed() const { return computed_; }
  /// Removes all requests, and returns them as partial trajectories.
  [[nodiscard]] std::vector<Trajectory> stop();

 private:
  struct Request {
    // The fields that every step reads lie together. A group has hundreds of requests, which caches
    // lose from step to step where one process simulates many groups.
    std::int32_t planned = 0;  ///< rows in the current plan
    kv::Handle kv = 0;
    std::uint32_t until = 0;    ///< Admission::until
    std::uint32_t renewed = 0;  ///< new end of its lease, not yet in force; 0: none
    std::int32_t turn_end = 0;  ///< response tokens at which it, or its turn, ends at the latest
    TokenId last = 0;           ///< last token of its text
    Arrival arrival;
    bool arrived = false;
    bool named = false;      ///< ending() has named the request for this lease
    bool penalised = false;  ///< its tokens are noted, for penalties
    bool usual = false;      ///< it has neither draw, stops nor notes of its own
    NoiseKey noise;
    std::vector<TokenId> prompt;
    Trajectory trajectory;
    std::uint64_t version = 0;  ///< Admission::version
    RequestSampling sampling;
    TextPictures pictures;
    TokenNotes notes = {};        ///< notes of its text that penalties and biases need
    std::vector<TokenId> banned;  ///< own stop ids banned before min_tokens; empty: none of its own
    StopMatcher matcher;
    [[nodiscard]] std::int32_t prompt_length() const { return std::ssize(prompt); }
    [[nodiscard]] std::int32_t response() const { return std::ssize(trajectory.tokens); }
    [[nodiscard]] std::int32_t text() const { return prompt_length() + response(); }
    /// Positions that an earlier step may have computed: all but tokens that an answer has added.
    [[nodiscard]] std::int32_t known() const {
      const bool fresh =
          !trajectory.turns.empty() && trajectory.tokens.size() == trajectory.turn_begin();
      return fresh ? prompt_length() + static_cast<std::int32_t>(trajectory.turns.back().given)
                   : text();
    }
  };
  using Requests = std::vector<Request>;

  [[nodiscard]] std::int32_t max_tokens(const RequestSampling& own) const {
    return own.max_tokens.value_or(sampling_.max_tokens);
  }
  [[nodiscard]] std::int32_t turn_end(const Trajectory& response, const RequestSampling& own) const;
  [[nodiscard]] std::int32_t longest(std::int32_t prompt_length, std::uint32_t until,
                                     const RequestSampling& own) const;
  [[nodiscard]] std::int32_t longest(const Request& r) const {
    return longest(r.prompt_length(), r.until, r.sampling);
  }
  [[nodiscard]] std::int32_t most_drafted(const Request& r) const;
  [[nodiscard]] const Request& at(RequestId id) const;
  [[nodiscard]] Request& at(RequestId id) {
    return const_cast<Request&>(std::as_const(*this).at(id));
  }
  [[nodiscard]] std::int32_t owner(const Request& r) const { return kv_.owner_of(r.kv); }
  [[nodiscard]] std::vector<std::int32_t> owners_for(std::uint32_t prompt,
                                                     OptionalIndex wanted) const;
  [[nodiscard]] Requests::iterator end_of(std::int32_t owner);
  void settle();
  void unstick(std::int32_t owner);
  void grow_all(std::int32_t owner);
  [[nodiscard]] std::int32_t prefilling_owners();
  [[nodiscard]] bool grow(const Request& r);
  void go_on(Request& r);
  [[nodiscard]] bool rests(const Request& r) const;
  Requests::iterator park(Requests::iterator request);
  [[nodiscard]] Admission take(Request& r);
  void take_arrived(Request& r);
  [[nodiscard]] bool can_run(Request& r);
  [[nodiscard]] std::int32_t remaining(const Request& r) const;
  [[nodiscard]] bool decodes(const Request& r) const;
  StepPart& add_part(Request& r, std::int32_t rows);
  void note_part(const Request& r);
  void add_rows(Request& r, std::int32_t rows);
  void add_draft(Request& r, const DraftTree& draft);
  StepSample& add_sample(const Request& r, std::int32_t row, std::int32_t depth);
  void note_text(Request& r) const;
  void note_path(StepSample& sample, std::int32_t row);
  void turn_rows();
  [[nodiscard]] bool ends(const Request& r, TokenId token) const;
  std::optional<FinishReason> append(Request& r, std::size_t sample);
  std::optional<FinishReason> verify(Request& r, const StepPart& part, std::size_t first_sample);
  [[nodiscard]] std::int32_t child_row(const StepPart& part, std::int32_t row, TokenId token) const;

  BatcherLimits limits_;
  SamplingParams sampling_;
  std::vector<TokenId> stops_;
  const TokenText* text_;
  kv::OwnedSequences kv_;
  PictureSlots pictures_;
  Requests requests_;     ///< by owner, each owner's requests in order of arrival
  bool settled_ = false;  ///< each request has room for its part of the next step
  std::vector<Admission> parked_;
  std::vector<RequestId> turns_over_;
  Step step_;
  StepCounts counts_;
  StepSample of_part_;  ///< the fields that all samples of the last part have in common
  std::vector<Decoding> decoding_;
  std::int32_t prefill_rows_ = 0;
  std::uint64_t shared_ = 0;  ///< kv_.positions_shared() at the last plan
  TreeRows rows_;
  std::vector<std::int32_t> draft_index_;  ///< [rows of the step] index in the draft, or -1
  StepResult result_;                      ///< the result being committed
  std::vector<std::size_t> first_kept_;    ///< [samples] first of kept_ids, where masks are kept
  std::vector<std::vector<kv::Place>> routed_places_;
  std::vector<Committed> committed_;
  std::vector<TokenId> committed_tokens_;     ///< storage of committed_'s tokens
  std::vector<std::int32_t> committed_path_;  ///< storage of committed_'s paths
  std::vector<Computed> computed_;
  std::vector<std::int32_t> computed_rows_;  ///< storage of computed_'s rows
};

}  // namespace paceline::engine
