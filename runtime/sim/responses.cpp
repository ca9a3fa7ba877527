#include "runtime/sim/responses.hpp"

#include <stdexcept>

namespace paceline::sim {

Responses::Responses(const Workload& workload, std::uint64_t seed, std::uint64_t weight_version)
    : vocab_(workload.vocabulary) {
  for (std::uint32_t p = 0; p < workload.prompts.size(); ++p) {
    for (std::uint32_t s = 0; s < workload.requests[p].size(); ++s) {
      const Prompt& prompt = workload.prompts[p];
      const ModelledRequest& request = workload.requests[p][s];
      const NoiseKey noise = noise_key(seed, weight_version, prompt.uid, s);
      responses_.emplace(
          noise,
          Response{
              {p, s}, noise, &request, &prompt, {workload.acceptance, noise, request.acceptance}});
    }
  }
}

const Response& Responses::of(const NoiseKey& noise) const {
  const auto at = responses_.find(noise);
  if (at == responses_.end()) throw std::logic_error("noise of no response");
  return at->second;
}

TokenId Responses::token(const Response& response, std::int32_t index) const {
  if (index + 1 >= response.request->length) return kModelledStop;
  return modelled_token(response.noise, index, vocab_);
}

}  // namespace paceline::sim
