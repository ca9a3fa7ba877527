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

/// Counters of the step last planned, for telemetry.
struct StepCounts {
  std::uint32_t requests = 0;
  std::uint32_t prefill_tokens = 0;
  std::uint32_t decode_tokens = 0;
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

  /// The next step: one row for every decoding request, and up to prefill_chunk rows of prompts in
  /// order of arrival. Empty when nothing runs. Every plan must be committed.
  [[nodiscard]] const Step& plan();
  [[nodiscard]] const StepCounts& counts() const { return counts_; }
  /// Takes the tokens sampled for the plan; returns the responses that ended, in batch order.
  [[nodiscard]] std::vector<Trajectory> commit(std::span<const kernels::Sampled> sampled);
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
  void fork_from_prefix(Sequence& s);
  void add_rows(Sequence& s, std::int32_t rows);
  void make_writable(Sequence& s, std::int32_t rows);
  void share_prompt(Sequence& s);
  std::optional<FinishReason> append(Sequence& s, const kernels::Sampled& sampled);
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
};

}  // namespace paceline::engine
