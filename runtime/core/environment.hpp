// The other side of a conversation, which answers a response's turns (tools, users, games).
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/types.hpp"

namespace paceline {

/// Answer to the last turn of a response.
struct EnvironmentReply {
  RequestId id;
  std::vector<TokenId> tokens;  ///< given tokens, before the next sampled turn; empty when done
  GivenBy by = GivenBy::nobody;
  bool done = false;                                       ///< the conversation is over
  bool failed = false;                                     ///< there is no answer, and will be none
  float reward = std::numeric_limits<float>::quiet_NaN();  ///< reward of the turn; NaN: none
  std::string extra;   ///< values in addition to the reward: a JSON object, or empty
  double seconds = 0;  ///< since the turn was told
};

/// Answers turns, in any order. Used by one thread; no call waits.
class Environment {
 public:
  virtual ~Environment() = default;
  /// The response's last turn has ended: an answer is wanted. The needed parts of the response are
  /// copied. `goes_on`: there can be another turn; otherwise given tokens do not count.
  virtual void ask(const Trajectory& response, bool goes_on) = 0;
  /// The conversation goes on elsewhere, or not at all: no answer is wanted.
  virtual void leave(RequestId id) = 0;
  /// Takes the answers since the last call.
  [[nodiscard]] virtual std::vector<EnvironmentReply> take() = 0;
};

/// Bounds of a conversation.
struct ConversationLimits {
  std::int32_t max_turns = 1;   ///< sampled turns
  std::int32_t max_tokens = 1;  ///< tokens of the whole response, given ones included
  std::int32_t context = 1;     ///< positions of a sequence, the prompt's included
  bool rewards = true;          ///< the response's reward is the sum of its turns' rewards
  bool keep_masks = false;      ///< SamplingParams::keep_masks
  std::int32_t logprobs = 0;    ///< SamplingParams::logprobs
};

/// Takes an answer into a response whose last turn has ended (finish_reason says why). Returns
/// whether the response goes on, with the given tokens appended. Otherwise the response has ended,
/// and finish_reason then says why. `prompt`: number of its tokens.
[[nodiscard]] bool take_reply(Trajectory& response, const EnvironmentReply& reply,
                              std::size_t prompt, const ConversationLimits& limits);

}  // namespace paceline
