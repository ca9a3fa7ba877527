// Sampling parameters of a response, and the identity of its noise.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/token_notes.hpp"
#include "runtime/core/types.hpp"

namespace paceline {

/// Parameters for drawing a token from the logits that are not masked. They are parameters of
/// SamplingParams that a request may have of its own.
struct TokenDraw {
  float temperature = 1.0F;
  std::int32_t top_k = 0;
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  /// Whether the draw depends on the tokens before.
  [[nodiscard]] bool penalises() const {
    return repetition_penalty != 1.0F || presence_penalty != 0.0F || frequency_penalty != 0.0F;
  }
  friend bool operator==(const TokenDraw&, const TokenDraw&) = default;
};

/// Sampling controls of a run. They apply in the order logit_bias, repetition_penalty,
/// frequency_penalty, presence_penalty, masks, temperature, top-k, top-p, min-p. Each of the three
/// filters works on the renormalised distribution that the filter before leaves.
struct SamplingParams {
  float temperature = 1.0F;  ///< >= 0; 0 is argmax, lowest id on ties
  std::int32_t top_k = 0;    ///< 0: off
  float top_p = 1.0F;        ///< (0, 1]; 1: off
  float min_p = 0.0F;        ///< [0, 1); 0: off; keeps tokens with p >= min_p * max p
  /// > 0; 1: off. For tokens in the prompt or the response: a negative logit is multiplied by this
  /// factor, any other logit is divided by it.
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;      ///< subtracted from logits of tokens that were sampled
  float frequency_penalty = 0.0F;     ///< subtracted once for each time a token was sampled
  std::vector<LogitBias> logit_bias;  ///< ascending, each token once; before penalties
  std::int32_t min_tokens = 0;        ///< stop ids cannot be sampled before this number of tokens
  std::int32_t max_tokens = 1024;     ///< longest response, in tokens
  std::uint64_t seed = 1;
  bool ignore_eos = false;                ///< the model's own end tokens do not stop a response
  std::vector<TokenId> stop_ids;          ///< further stop tokens (kept in the response)
  std::vector<std::string> stop_strings;  ///< UTF-8; the token that completes a string is kept
  std::vector<TokenId> banned_ids;        ///< banned by the user
  std::vector<TokenId> allowed_ids;       ///< all other ids are banned; empty: all are allowed
  bool mask_unused = true;                ///< tokens without meaning are banned too
  /// Tokens banned by these three settings for the model: ascending, each once. They have no part
  /// in the sampled distribution, nor in sampling_logprob.
  std::vector<TokenId> masked;
  /// Records the ids that each sampled token could have been: at most top_k, which must be from 1
  /// to kMostKept.
  bool keep_masks = false;
  static constexpr std::int32_t kMostKept = 1024;
  /// Records the experts that each token uses (Trajectory::routing).
  bool keep_routing = false;
  /// Number of most probable tokens that are recorded for each position (Trajectory::top_ids).
  std::int32_t logprobs = 0;
  static constexpr std::int32_t kMostLogprobs = 32;

  [[nodiscard]] TokenDraw draw() const {
    return {temperature,      top_k, top_p, min_p, repetition_penalty, presence_penalty,
            frequency_penalty};
  }
};

/// Tokens that cannot be sampled before min_tokens: masked ones and `stops`, which end a response.
/// Ascending, each once.
[[nodiscard]] std::vector<TokenId> banned_early(const SamplingParams& sampling,
                                                std::span<const TokenId> stops);

/// 128 bits that name the noise stream of one request: the Philox key (first 64) and the upper half
/// of its counter (last 64). The index of a response token and a token id select the lower half.
struct NoiseKey {
  std::uint64_t key = 0;
  std::uint64_t stream = 0;
  friend bool operator==(const NoiseKey&, const NoiseKey&) = default;
};

/// The noise of a request (prompt uid, sample index) under a seed and a weight version: a hash of
/// these four alone, so that the run's layout cannot change it.
[[nodiscard]] NoiseKey noise_key(std::uint64_t seed, std::uint64_t weight_version,
                                 std::string_view prompt_uid, std::uint32_t sample_index);

/// Ends of a response.
struct StopSet {
  std::vector<TokenId> ids;          ///< all ids, the model's own included; kept in the response
  std::vector<std::string> strings;  ///< UTF-8; the token that completes a string is kept
  friend bool operator==(const StopSet&, const StopSet&) = default;
};

/// Sampling parameters that a prompt's line sets; the rest is the run's.
struct RequestSampling {
  std::optional<std::int32_t> max_tokens;
  std::optional<StopSet> stops;
  std::optional<TokenDraw> draw = {};  ///< all fields, with the run's where the line says nothing
  std::optional<std::vector<LogitBias>> logit_bias = {};
  std::optional<std::uint64_t> seed = {};  ///< seed of the noise
  friend bool operator==(const RequestSampling&, const RequestSampling&) = default;
};

}  // namespace paceline
