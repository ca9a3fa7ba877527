// Continuous batching on a verifier group: which requests run, where their KV lives, and what the
// next step computes. Bookkeeping only; a StepRunner does the arithmetic.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/engine/draft_tree.hpp"
#include "runtime/engine/step.hpp"
#include "runtime/engine/stop_matcher.hpp"
#include "runtime/kv/block_pool.hpp"

namespace paceline::engine {

struct BatcherLimits {
  std::int32_t max_batch = 64;       ///< requests that run at once
  std::int32_t prefill_chunk = 256;  ///< prompt tokens in a step
  std::int32_t kv_block = 16;        ///< positions a block
  std::int32_t kv_blocks = 0;        ///< blocks in the pool
  std::int32_t context = 0;          ///< longest sequence the model takes, prompt and response
};

/// A request as a verifier receives it.
struct Admission {
  Trajectory trajectory;  ///< id, and what it already has when it is resumed
  std::vector<TokenId> prompt;
  NoiseKey noise;
};

/// A request whose part of the next step is one decoding row, under which a draft can hang.
struct Decoding {
  RequestId id;
  std::int32_t response = 0;  ///< tokens so far
  std::int32_t context = 0;   ///< with the prompt's
  std::int32_t room = 0;      ///< most tokens of a draft: no more can be committed
};

/// What a step committed to a request.
struct Committed {
  RequestId id;
  std::int32_t decoding = -1;       ///< index into decoding(); -1: it ended its prefill
  std::span<const TokenId> tokens;  ///< [>= 1]
  /// Indices into the draft of the tokens it foretold: all but the last, or all where the response
  /// ended with a drafted one.
  std::span<const std::int32_t> path;
  bool finished = false;
};

/// Counters of the step last planned, for telemetry.
struct StepCounts {
  std::uint32_t requests = 0;
  std::uint32_t prefill_tokens = 0;
  std::uint32_t decode_tokens = 0;  ///< rows of requests past their prompt, draft rows included
  std::uint32_t drafted = 0;        ///< draft rows
};

/// Requests of one verifier group. A request is admitted only when the pool can hold it at its
/// longest, so nothing that runs is ever preempted. The n responses to a prompt share its blocks:
/// the first computes them, the others fork from the prompt's last position and copy a block when
/// they write into it. Not thread-safe.
class Batcher {
 public:
  /// `stops`: all ids that end a response. `text` may be null when there are no stop strings.
  Batcher(const BatcherLimits& limits, const SamplingParams& sampling, std::vector<TokenId> stops,
          const TokenText* text);

  /// KV blocks that a request of this prompt length needs at most, alone in the pool.
  [[nodiscard]] std::int32_t blocks_needed(std::size_t prompt_tokens) const;
  /// Takes the request in when a slot and its blocks are there; otherwise returns false and leaves
  /// it.
  bool admit(Admission& request);
  [[nodiscard]] std::int32_t active() const { return static_cast<std::int32_t>(sequences_.size()); }
  [[nodiscard]] std::int32_t blocks_used() const { return pool_.used(); }

  /// The requests that decode in the next step, in its order. Valid until the next call.
  [[nodiscard]] std::span<const Decoding> decoding();
  /// The rows of prompts in that step, as decoding() found.
  [[nodiscard]] std::int32_t prefill_rows() const { return prefill_rows_; }
  /// The next step: one row for every decoding request, and up to prefill_chunk rows of prompts in
  /// order of arrival. Empty when nothing runs. Every plan must be committed. `drafts`: none, or
  /// one (which may be empty) for each of decoding(), to be verified in the same step.
  [[nodiscard]] const Step& plan(std::span<const DraftTree> drafts = {});
  [[nodiscard]] const StepCounts& counts() const { return counts_; }
  /// Takes the tokens sampled for the plan; returns the responses that ended, in batch order. Along
  /// each draft the tokens that equal the target's own are committed, and one more.
  [[nodiscard]] std::vector<Trajectory> commit(std::span<const kernels::Sampled> sampled);
  /// What the last commit() committed, in batch order. Valid until the next.
  [[nodiscard]] std::span<const Committed> committed() const { return committed_; }
  /// Removes everything that runs and returns it as partial trajectories.
  [[nodiscard]] std::vector<Trajectory> stop();

 private:
  /// A prompt's blocks, shared by the responses to it and kept while there is room.
  struct Prefix {
    std::uint32_t prompt = 0;
    std::int32_t reserved = 0;         ///< blocks counted for it
    std::vector<std::int32_t> blocks;  ///< of all prompt positions, once computed
    bool ready = false;
    std::int32_t users = 0;  ///< running requests of this prompt
  };
  struct Sequence {
    Trajectory trajectory;
    std::vector<TokenId> tokens;  ///< prompt and response
    std::int32_t prompt_length = 0;
    std::int32_t computed = 0;  ///< positions whose KV is stored
    std::int32_t planned = 0;   ///< rows in the current plan
    std::int32_t reserved = 0;  ///< blocks counted for it, beside its prefix's
    std::vector<std::int32_t> blocks;
    NoiseKey noise;
    Prefix* prefix = nullptr;
    bool owns_prefix = false;  ///< computes the prompt for its siblings
    StopMatcher matcher;
  };
  using Sequences = std::list<Sequence>;

  [[nodiscard]] bool waits_for_prefix(const Sequence& s) const {
    return !s.owns_prefix && !s.prefix->ready;
  }
  [[nodiscard]] std::int32_t reservation(std::int32_t prompt_length) const;
  [[nodiscard]] std::int32_t room(const Sequence& s) const;
  bool settle(Sequence& s);
  void fork_from_prefix(Sequence& s);
  StepPart& add_part(Sequence& s, std::int32_t rows);
  void add_rows(Sequence& s, std::int32_t rows);
  void add_draft(Sequence& s, const DraftTree& draft);
  void add_sample(const Sequence& s, std::int32_t row, std::int32_t depth);
  void make_writable(Sequence& s, std::int32_t rows);
  void share_prompt(Sequence& s);
  std::optional<FinishReason> append(Sequence& s, const kernels::Sampled& sampled);
  std::optional<FinishReason> verify(Sequence& s, const StepPart& part,
                                     std::span<const kernels::Sampled> sampled);
  [[nodiscard]] std::int32_t child_row(const StepPart& part, std::int32_t row, TokenId token) const;
  void move_slot(const Sequence& s, std::int32_t from, std::int32_t to);
  void remove(Sequence& s);
  void evict_idle_prefixes(std::int32_t needed);

  BatcherLimits limits_;
  SamplingParams sampling_;
  std::vector<TokenId> stops_;
  const TokenText* text_;
  kv::BlockPool pool_;
  std::int32_t reserved_ = 0;   ///< blocks promised to running requests and all prefixes
  Sequences sequences_;         ///< in order of arrival
  std::list<Prefix> prefixes_;  ///< least recently used first
  std::unordered_map<std::uint32_t, std::list<Prefix>::iterator> prefix_of_prompt_;
  Step step_;
  StepCounts counts_;
  std::vector<Decoding> decoding_;
  std::int32_t prefill_rows_ = 0;
  TreeRows rows_;
  std::vector<std::int32_t> draft_index_;  ///< [rows] of the step: token of its draft, or -1
  std::vector<kernels::Backend::SlotMove> moves_;  ///< for the next step
  std::vector<Committed> committed_;
  std::vector<TokenId> committed_tokens_;     ///< what committed_ points into
  std::vector<std::int32_t> committed_path_;  ///< likewise
};

}  // namespace paceline::engine
