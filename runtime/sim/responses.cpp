#include "runtime/sim/responses.hpp"

#include <algorithm>
#include <stdexcept>

namespace paceline::sim {

Responses::Responses(const Workload& workload, std::uint64_t seed, std::uint64_t weight_version)
    : vocab_(workload.vocabulary) {
  by_request_.resize(workload.prompts.size());
  for (std::uint32_t p = 0; p < workload.prompts.size(); ++p) {
    for (std::uint32_t s = 0; s < workload.requests[p].size(); ++s) {
      const Prompt& prompt = workload.prompts[p];
      const ModelledRequest& request = workload.requests[p][s];
      const NoiseKey noise = noise_key(seed, weight_version, prompt.uid, s);
      const auto [at, added] = responses_.emplace(
          noise,
          Response{
              {p, s}, noise, &request, &prompt, {workload.acceptance, noise, request.acceptance}});
      by_request_[p].push_back(&at->second);
    }
  }
}

const Response& Responses::of(const NoiseKey& noise) const {
  const auto at = responses_.find(noise);
  if (at == responses_.end()) throw std::logic_error("noise of no response");
  return at->second;
}

const Response& Responses::of(RequestId id) const {
  return *by_request_.at(id.prompt).at(id.sample);
}

TokenId Responses::token(const Response& response, std::int32_t index) const {
  if (index + 1 >= response.request->length) return kModelledStop;
  const std::vector<ModelledTurn>& turns = response.request->turns;
  const auto turn = std::lower_bound(
      turns.begin(), turns.end(), index + 1,
      [](const ModelledTurn& candidate, std::int32_t end) { return candidate.end < end; });
  if (turn != turns.end() && turn->end == index + 1) return kModelledStop;
  return modelled_token(response.noise, index, vocab_);
}

}  // namespace paceline::sim
