#include "runtime/roles/conversations.hpp"

#include <algorithm>

namespace paceline::roles {

ConversationLimits Conversations::limits_of(const Admission& request) const {
  ConversationLimits limits = limits_;
  limits.max_tokens = request.sampling.max_tokens.value_or(limits.max_tokens);
  return limits;
}

bool Conversations::may_go_on(const Admission& request) const {
  const ConversationLimits limits = limits_of(request);
  const std::size_t tokens = request.trajectory.tokens.size();
  return tokens < static_cast<std::size_t>(limits.max_tokens) &&
         request.prompt.size() + tokens < static_cast<std::size_t>(limits.context) &&
         request.trajectory.turns.size() + 1 < static_cast<std::size_t>(limits.max_turns);
}

void Conversations::ask(Admission request, const policy::KeptKv& kv) {
  environment_->ask(request.trajectory, may_go_on(request));
  const RequestId id = request.trajectory.id;
  waiting_.insert_or_assign(id, Waiting{std::move(request), kv});
}

void Conversations::add_held(std::vector<RequestLength>& held) const {
  for (const auto& [id, waiting] : waiting_)
    held.push_back({id, static_cast<std::uint32_t>(waiting.request.trajectory.tokens.size())});
}

std::vector<Conversations::Answered> Conversations::take() {
  std::vector<Answered> answered;
  if (environment_ == nullptr) return answered;
  for (const EnvironmentReply& reply : environment_->take()) {
    auto waiting = waiting_.extract(reply.id);
    if (waiting.empty()) continue;  // stop() has returned the request
    Admission& request = waiting.mapped().request;
    const bool goes_on =
        take_reply(request.trajectory, reply, request.prompt.size(), limits_of(request));
    if (!goes_on && !reply.done) environment_->leave(reply.id);
    answered.push_back({std::move(request), waiting.mapped().kv, goes_on});
  }
  return answered;
}

void Conversations::leave(RequestId id) {
  if (environment_ != nullptr) environment_->leave(id);
}

std::vector<Conversations::Answered> Conversations::stop() {
  std::vector<Answered> stopped;
  for (auto& [id, waiting] : waiting_) {
    Trajectory& t = waiting.request.trajectory;
    t.finish_reason = FinishReason::partial;
    const std::size_t width = t.top_ids.size() / t.tokens.size();
    t.top_ids.resize(t.top_ids.size() - width);
    t.top_logprob.resize(t.top_ids.size());
    t.tokens.pop_back();
    t.logprob.pop_back();
    t.sampling_logprob.pop_back();
    if (!t.kept.empty()) {
      t.kept_ids.resize(t.kept_ids.size() - static_cast<std::size_t>(t.kept.back()));
      t.kept.pop_back();
    }
    environment_->leave(id);
    stopped.push_back({std::move(waiting.request), waiting.kv, true});
  }
  waiting_.clear();
  return stopped;
}

}  // namespace paceline::roles
