// Prompts, requests and the trajectories they become.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/pictures.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/types.hpp"

namespace paceline {

/// One line of the prompt file, tokenized.
struct Prompt {
  std::string uid;                ///< unique in the file; content_uid() when the line has none
  std::vector<TokenId> tokens;    ///< chat template applied; never empty
  std::string ground_truth;       ///< empty when absent
  std::string extra_json;         ///< fields of the line, messages too, as one JSON object
  RequestSampling sampling = {};  ///< sampling of the responses to the prompt
  std::uint32_t samples = 0;      ///< number of responses by the line itself; 0: the run's number
  /// In the order of their rows. Each has rows of a placeholder in `tokens`.
  std::vector<PromptPicture> pictures = {};
};

/// Uid of a prompt without one: 20 hexadecimal digits, a hash of its tokens and its pictures'
/// files. (80 bits: among 10^9 prompts two collide with a probability of one in a million.)
[[nodiscard]] std::string content_uid(std::span<const TokenId> tokens,
                                      std::span<const PromptPicture> pictures = {});

/// Identity of a response: the `sample`-th response to the `prompt`-th prompt of the file.
struct RequestId {
  std::uint32_t prompt = 0;
  std::uint32_t sample = 0;
  friend auto operator<=>(const RequestId&, const RequestId&) = default;
};

/// Why a response ended. Stored in files: values are fixed.
enum class FinishReason : std::uint8_t {
  stop_id = 0,      ///< an end or stop token was sampled (it is the last token)
  length = 1,       ///< max_tokens reached
  stop_string = 2,  ///< a stop string was completed
  context = 3,      ///< the model's context is full
  turns = 4,        ///< max_turns of a conversation reached
  failed = 5,       ///< the environment of a conversation failed
  partial = 255,    ///< not ended: written at a clean stop, continued by --resume
};
/// All of them. Files have no others.
inline constexpr std::array kFinishReasons{
    FinishReason::stop_id, FinishReason::length, FinishReason::stop_string, FinishReason::context,
    FinishReason::turns,   FinishReason::failed, FinishReason::partial};
[[nodiscard]] const char* name_of(FinishReason reason);

/// The giver of tokens in a response. Stored in files: values are fixed.
enum class GivenBy : std::uint8_t {
  nobody = 0,  ///< no tokens were given
  tool = 1,
  user = 2,
  tokens = 3,  ///< an environment that gave ids, not messages
};

/// A turn of a conversation that the environment has answered: sampled tokens, then given ones. The
/// turn begins where the turn before it ends.
struct AnsweredTurn {
  std::uint32_t given = 0;  ///< response tokens before the given ones
  std::uint32_t end = 0;    ///< response tokens up to the last given one
  float seconds = 0;        ///< waiting time for the answer
  float reward = std::numeric_limits<float>::quiet_NaN();  ///< NaN: the answer had none
  GivenBy by = GivenBy::nobody;
  FinishReason reason = FinishReason::stop_id;  ///< why the sampled part ended
  std::uint16_t unused = 0;                     ///< so that no byte is without a value
};

/// One response. tokens, logprob and sampling_logprob have equal length (tokens of the response).
struct Trajectory {
  RequestId id;
  std::vector<TokenId> tokens;          ///< [response] includes the stop token
  std::vector<float> logprob;           ///< [response] at the sampling temperature, full vocabulary
  std::vector<float> sampling_logprob;  ///< [response] after top-k / top-p / min-p
  /// Ids that each token could have been (SamplingParams::keep_masks), ascending, token by token,
  /// and the number of ids for each token. Empty: not recorded.
  std::vector<std::int32_t> kept;  ///< [response]
  std::vector<TokenId> kept_ids;   ///< [sum of kept]
  /// The most probable tokens at the position of each token, and their log-probabilities at
  /// temperature 1 over the full vocabulary, best first (SamplingParams::logprobs). Positions of
  /// given tokens have -1 and 0. Empty: not recorded.
  std::vector<TokenId> top_ids = {};    ///< [response, logprobs]
  std::vector<float> top_logprob = {};  ///< [response, logprobs]
  /// Experts of a finished response's positions from first_routed() on
  /// (SamplingParams::keep_routing): [positions, layers with experts, chosen], ascending in each
  /// layer. Empty: not recorded.
  std::vector<std::int16_t> routing = {};
  FinishReason finish_reason = FinishReason::partial;
  float reward = 0.0F;  ///< NaN when no reward was computed
  std::uint64_t weight_version = 0;
  /// The answered turns of a conversation. Log-probabilities of given tokens are 0, and no ids are
  /// kept for them.
  std::vector<AnsweredTurn> turns = {};
  std::string reward_extra = {};  ///< EnvironmentReply::extra of the last answer, or empty

  /// Response tokens before the turn that is being sampled, or was sampled last.
  [[nodiscard]] std::uint32_t turn_begin() const { return turns.empty() ? 0 : turns.back().end; }
};

/// Notes the tokens of a response, or of its beginning. Given tokens are noted like a prompt's.
void note_response(TokenNotes& notes, std::span<const TokenId> tokens,
                   std::span<const AnsweredTurn> turns);

/// The first position whose experts a response records: the first sample has the prompt's positions
/// too, for all samples. The last token uses no experts, for nothing follows it.
[[nodiscard]] inline std::size_t first_routed(RequestId id, std::size_t prompt_length) {
  return id.sample == 0 ? 0 : prompt_length;
}

/// The scorer's reward for a response.
struct Reward {
  RequestId id;
  float value = 0;
};

/// The digest by which runs are compared for exactness: a 128-bit hash over prompts and
/// trajectories, down to the bits of the log-probabilities. add() must be called in (prompt,
/// sample) order.
class TrajectoryDigest {
 public:
  TrajectoryDigest();
  ~TrajectoryDigest();
  TrajectoryDigest(const TrajectoryDigest&) = delete;
  TrajectoryDigest& operator=(const TrajectoryDigest&) = delete;

  /// Adds a response: the prompt's uid and tokens, then the trajectory. The prompt index is left
  /// out, so that a reordered prompt file, fed in uid order, has the same digest. Rewards are left
  /// out, so that a run has one digest, however it is scored. Of each turn the bounds of its given
  /// tokens and the reason of its end are added.
  void add(std::string_view uid, std::span<const TokenId> prompt, const Trajectory& trajectory);
  [[nodiscard]] std::string hex() const;  ///< 32 hexadecimal digits

 private:
  struct State;
  State* state_;
};

}  // namespace paceline
