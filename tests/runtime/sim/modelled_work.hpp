// Modelled requests that tests decode and draft for.
#pragma once

#include <cstdint>

#include "runtime/sim/responses.hpp"
#include "runtime/sim/workload.hpp"

namespace paceline::sim {

inline constexpr std::uint64_t kNoiseSeed = 11;

/// Prompts of 20 tokens with responses of 60, drafted for by n-grams (0) and a model (1).
inline Workload modelled_work(std::int32_t prompts, std::int32_t samples) {
  WorkloadSettings settings;
  settings.prompts = prompts;
  settings.samples = samples;
  settings.max_tokens = 60;
  settings.vocabulary = 100;
  settings.acceptance.methods = {ngram_acceptance(), draft_model_acceptance("model:draft")};
  return make_workload(settings, LengthDistribution::fixed(60), LengthDistribution::fixed(20));
}

[[nodiscard]] inline NoiseKey noise_of(const Workload& work, RequestId id) {
  return noise_key(kNoiseSeed, 0, work.prompts[id.prompt].uid, id.sample);
}

}  // namespace paceline::sim
