#include "runtime/core/environment.hpp"

#include <cmath>
#include <cstddef>
#include <optional>

namespace paceline {
namespace {

/// The reason for which a response ends with its last turn; nothing: it goes on.
std::optional<FinishReason> ending(const Trajectory& response, const EnvironmentReply& reply,
                                   std::size_t prompt, const ConversationLimits& limits) {
  const std::size_t tokens = response.tokens.size();
  if (reply.done) return response.finish_reason;
  const auto full = [&](std::size_t length) -> std::optional<FinishReason> {
    if (length >= static_cast<std::size_t>(limits.max_tokens)) return FinishReason::length;
    if (prompt + length >= static_cast<std::size_t>(limits.context)) return FinishReason::context;
    return std::nullopt;
  };
  if (const auto reason = full(tokens)) return reason;
  if (response.turns.size() >= static_cast<std::size_t>(limits.max_turns))
    return FinishReason::turns;
  return full(tokens + reply.tokens.size());
}

/// The sum of the turns' rewards; NaN: no turn has a reward.
float reward_of(const Trajectory& response) {
  float sum = std::numeric_limits<float>::quiet_NaN();
  for (const AnsweredTurn& turn : response.turns) {
    if (std::isnan(turn.reward)) continue;
    sum = std::isnan(sum) ? turn.reward : sum + turn.reward;
  }
  return sum;
}

}  // namespace

bool take_reply(Trajectory& response, const EnvironmentReply& reply, std::size_t prompt,
                const ConversationLimits& limits) {
  std::optional<FinishReason> reason;
  if (reply.failed) {
    reason = FinishReason::failed;
  } else {
    const auto tokens = static_cast<std::uint32_t>(response.tokens.size());
    response.turns.push_back({.given = tokens,
                              .end = tokens,
                              .seconds = static_cast<float>(reply.seconds),
                              .reward = reply.reward,
                              .reason = response.finish_reason});
    reason = ending(response, reply, prompt, limits);
  }
  if (reason) {
    response.finish_reason = *reason;
    if (limits.rewards) {
      response.reward = reward_of(response);
      response.reward_extra = reply.extra;
    }
    return false;
  }
  response.finish_reason = FinishReason::partial;
  response.tokens.insert(response.tokens.end(), reply.tokens.begin(), reply.tokens.end());
  response.logprob.resize(response.tokens.size(), 0.0F);
  response.sampling_logprob.resize(response.tokens.size(), 0.0F);
  if (limits.keep_masks) response.kept.resize(response.tokens.size(), 0);
  response.top_ids.resize(response.tokens.size() * limits.logprobs, -1);
  response.top_logprob.resize(response.top_ids.size(), 0.0F);
  response.turns.back().by = reply.by;
  response.turns.back().end = static_cast<std::uint32_t>(response.tokens.size());
  return true;
}

}  // namespace paceline
