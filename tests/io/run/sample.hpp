// Runs made by formula: a test, here or in Python, can say what every field of any response is.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "io/run/manifest.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io::sample {

inline std::vector<Prompt> prompts(std::uint32_t count) {
  std::vector<Prompt> result(count);
  for (std::uint32_t p = 0; p < count; ++p) {
    result[p].uid = "uid-" + std::to_string(p * 7919 % 1000) + "-" + std::to_string(p);
    for (std::uint32_t t = 0; t < 3 + p % 5; ++t) {
      result[p].tokens.push_back(static_cast<TokenId>(1000 * p + t));
    }
    result[p].ground_truth = p % 2 == 0 ? "answer \u00e9 " + std::to_string(p) : "";
    result[p].extra_json = "{\"level\":" + std::to_string(p) + "}";
  }
  return result;
}

/// Response lengths differ; some are empty.
inline std::uint32_t length_of(RequestId id) { return (id.prompt * 31 + id.sample * 17) % 23; }

inline FinishReason reason_of(RequestId id) {
  return static_cast<FinishReason>((id.prompt + id.sample) % 4);
}

/// With what its tokens could have been, as a run with sampling.keep_masks records it.
inline Trajectory masked(Trajectory t) {
  for (const TokenId token : t.tokens) {
    t.kept.push_back(1 + token % 3);
    for (std::int32_t i = 0; i < t.kept.back(); ++i) t.kept_ids.push_back(token + i);
  }
  return t;
}

/// With kTop of the most probable tokens in the place of each, as a run with sampling.logprobs
/// records them.
inline constexpr std::int32_t kTop = 3;
inline Trajectory with_top(Trajectory t) {
  for (const TokenId token : t.tokens) {
    for (std::int32_t i = 0; i < kTop; ++i) {
      t.top_ids.push_back(token + 2 * i);
      t.top_logprob.push_back(-0.25F * static_cast<float>(token % 7 + i));
    }
  }
  return t;
}

/// A response as a conversation: every fourth token begins a turn's given part of two.
inline Trajectory conversation(Trajectory t) {
  for (std::uint32_t at = 2; at + 2 <= t.tokens.size(); at += 4) {
    for (std::uint32_t i = at; i < at + 2; ++i) t.logprob[i] = t.sampling_logprob[i] = 0;
    t.turns.push_back({.given = at,
                       .end = at + 2,
                       .seconds = 0.5F * static_cast<float>(at),
                       .reward = static_cast<float>(t.id.sample),
                       .by = GivenBy::tool,
                       .reason = FinishReason::length});
  }
  return t;
}

/// Of kRouting.width() experts a position, as a run with sampling.keep_routing records them.
inline const RoutingShape kRouting{{0, 1, 1}, 2, 128};
inline Trajectory routed(Trajectory t, std::size_t prompt) {
  const std::size_t end = prompt + t.tokens.size();
  for (std::size_t position = first_routed(t.id, prompt); position + 1 < end; ++position) {
    for (std::size_t i = 0; i < kRouting.width(); ++i) {
      const std::size_t of = position < prompt ? 0 : 7 * t.id.sample + 1;
      t.routing.push_back(static_cast<std::int16_t>((t.id.prompt + of + position * i) % 128));
    }
  }
  return t;
}

/// The first `length` tokens of a response.
inline Trajectory prefix(RequestId id, std::uint32_t length) {
  Trajectory result;
  result.id = id;
  for (std::uint32_t t = 0; t < length; ++t) {
    result.tokens.push_back(static_cast<TokenId>(id.prompt * 100 + id.sample * 10 + t));
    result.logprob.push_back(-0.5F * static_cast<float>(t) - static_cast<float>(id.sample));
    result.sampling_logprob.push_back(-0.25F * static_cast<float>(t));
  }
  result.finish_reason = FinishReason::partial;
  result.reward = std::numeric_limits<float>::quiet_NaN();
  result.weight_version = 12;
  return result;
}

inline Trajectory finished(RequestId id, std::uint32_t length) {
  Trajectory result = prefix(id, length);
  result.finish_reason = reason_of(id);
  if (id.prompt % 3 != 0) {
    result.reward = static_cast<float>(id.prompt) + 0.5F * static_cast<float>(id.sample);
  }
  return result;
}
inline Trajectory finished(RequestId id) { return finished(id, length_of(id)); }

inline RunManifest manifest(const std::vector<Prompt>& from, std::uint32_t samples) {
  RunManifest m;
  m.program_version = "0.1.0-test";
  m.config_text = "model:\n  path: somewhere\n";
  m.model_fingerprint = "00112233445566778899aabbccddeeff";
  m.vocabulary = std::uint64_t{1} << 30;
  m.prompts_fingerprint = prompts_fingerprint(from);
  m.prompts = from.size();
  m.samples = samples;
  m.sampling.temperature = 0.7F;
  m.sampling.max_tokens = 1 << 20;
  m.sampling.seed = 18446744073709551615U;
  m.sampling.stop_ids = {7, 8};
  m.sampling.stop_strings = {"\n\n", "\u00e9nd"};
  m.weight_version = 12;
  m.backend = "cpu";
  m.isa = "avx512_bf16";
  m.dtype = DType::bf16;
  return m;
}

}  // namespace paceline::io::sample
