// The log-probabilities of given responses under a StepRunner's weights: each response is fed to
// the model after its prompt, and a step packs as many rows of as many responses as there is room
// for. Bookkeeping only, as in Batcher, which generates responses.
//
// If the same weights generated the response, a row's logits equal, bit for bit, the logits from
// which its next token was sampled: a row does not depend on the other rows of its step.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/request.hpp"
#include "runtime/engine/picture_slots.hpp"
#include "runtime/engine/step.hpp"
#include "runtime/kv/sequences.hpp"

namespace paceline::engine {

struct PackedPrefillLimits {
  std::int32_t max_batch = 64;  ///< responses that have KV at once
  std::int32_t rows = 256;      ///< rows in a step, each of which may need logits
  std::int32_t kv_block = 16;   ///< positions per block
  std::int32_t kv_blocks = 0;   ///< blocks in the pool
  bool keep_routing = false;    ///< scores say where the experts of the positions are
  /// The experts of a response's positions(), [positions, layers with experts, chosen], to be given
  /// to the runner; null: none are given. Called when the response's first rows are planned.
  std::function<std::vector<std::int16_t>(RequestId)> routing = {};
  std::int32_t logprobs = 0;               ///< SamplingParams::logprobs
  TokenDraw draw = {};                     ///< parameters of responses without their own
  std::vector<LogitBias> logit_bias = {};  ///< biases of responses without their own
  std::int32_t picture_merge = 0;          ///< BatcherLimits::picture_merge
  std::int64_t picture_rows = 0;           ///< BatcherLimits::picture_rows
  /// The files of a prompt's pictures, by the prompt's index. Called before the first response to a
  /// prompt with pictures is admitted.
  std::function<std::vector<PictureBytes>(std::uint32_t)> files = {};
};

/// A response to be scored. Its spans outlive the PackedPrefill.
struct GivenResponse {
  RequestId id;
  std::span<const TokenId> prompt;    ///< [>= 1]
  std::span<const TokenId> response;  ///< [>= 1]
  const std::vector<TokenId>* banned =
      nullptr;                         ///< banned_early() of its own stop ids; null: the run's
  std::optional<TokenDraw> draw = {};  ///< the response's own; absent: the run's
  const std::vector<LogitBias>* logit_bias = nullptr;  ///< the response's own; null: the run's
  std::span<const AnsweredTurn> turns = {};            ///< turns, with tokens given in between
  std::span<const PromptPicture> pictures = {};        ///< pictures of the prompt
};

/// Scores of a response, as in Trajectory, from the distributions that these weights sample from.
struct ResponseScores {
  RequestId id;
  std::vector<float> logprob = {};           ///< [response]
  std::vector<float> sampling_logprob = {};  ///< [response] -infinity: cannot be sampled
  std::vector<TokenId> top_ids = {};         ///< [response, PackedPrefillLimits::logprobs]
  std::vector<float> top_logprob = {};       ///< [response, PackedPrefillLimits::logprobs]
  /// Places of the KV of positions from `first_routed` on; empty: experts are not kept. Valid until
  /// the next step runs. The first response to a prompt has the prompt's positions too.
  std::vector<kv::Place> routed_places = {};
  std::int32_t first_routed = 0;
};

/// Scores given responses. Siblings share their prompt's KV, which is computed once. Not
/// thread-safe.
class PackedPrefill {
 public:
  /// `responses`: siblings next to each other. `min_tokens`: stop ids are banned up to this length.
  /// Throws std::logic_error where the pool cannot hold one of the responses (positions()).
  PackedPrefill(const PackedPrefillLimits& limits, std::int32_t min_tokens,
                std::vector<GivenResponse> responses);

  /// Positions whose KV a response needs: all but its last token's, which nothing follows.
  [[nodiscard]] static std::int64_t positions(const GivenResponse& given) {
    return static_cast<std::int64_t>(given.prompt.size() + given.response.size()) - 1;
  }

  /// The next step; empty when all responses are done. Every plan must be committed.
  [[nodiscard]] const Step& plan();
  /// The given experts of the plan's rows; empty: none are given.
  [[nodiscard]] std::span<const std::int16_t> routing() const { return routing_; }
  /// Takes the plan's result, and returns the scores of the responses that are done.
  [[nodiscard]] std::vector<ResponseScores> commit(const StepResult& result);

 private:
  struct Active {
    GivenResponse given;
    TextPictures pictures;
    kv::Handle kv = 0;
    std::int32_t planned = 0;  ///< rows in the current plan
    ResponseScores scores;
    std::vector<std::int16_t> routing = {};  ///< given experts of all its positions
    TokenNotes notes = {};                   ///< notes of its text up to its next row
    bool penalised = false;                  ///< its tokens are noted, for penalties
  };
  void read_pictures(const GivenResponse& given);
  void admit();
  void add_rows(Active& r, std::int32_t rows);
  void note_token(Active& r, std::int32_t index);

  PackedPrefillLimits limits_;
  std::int32_t min_tokens_;
  std::vector<GivenResponse> responses_;
  std::size_t next_ = 0;  ///< index of the first of responses_ not yet admitted
  kv::Sequences kv_;
  PictureSlots pictures_;
  TextPictures shown_;             ///< pictures of the last prompt that read_pictures() read
  std::vector<TokenId> identity_;  ///< PictureSlots::identity() of this prompt, if it has pictures
  std::list<Active> active_;       ///< in the order of responses_
  Step step_;
  std::vector<std::int16_t> routing_;  ///< given experts of the plan's rows
};

}  // namespace paceline::engine
