// The requests of tests that decode without a model, and what is compared of the responses to them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "runtime/core/philox.hpp"
#include "runtime/core/request.hpp"
#include "runtime/engine/batcher.hpp"

namespace paceline {

inline constexpr int kVocab = 40;
inline constexpr TokenId kStop = 7;

/// Prompts are of 1 to 100 tokens: fewer than a KV block of 16, as many, one more, and several.
inline Admission request(std::uint32_t prompt, std::uint32_t sample) {
  Admission made;
  made.trajectory.id = {prompt, sample};
  const int lengths[] = {1, 15, 16, 17, 33, 100};
  for (int i = 0; i < lengths[prompt % 6]; ++i)
    made.prompt.push_back(static_cast<TokenId>((prompt * 31 + i * 7) % kVocab));
  made.noise = noise_key(5, 0, "p" + std::to_string(prompt), sample);
  return made;
}

/// Every request to so many prompts, siblings together.
inline std::deque<Admission> requests(std::uint32_t prompts, std::uint32_t samples) {
  std::deque<Admission> queue;
  for (std::uint32_t p = 0; p < prompts; ++p) {
    for (std::uint32_t s = 0; s < samples; ++s) queue.push_back(request(p, s));
  }
  return queue;
}

/// The same as a coordinator is given them: responses without a token yet.
inline std::vector<Trajectory> empty_responses(std::uint32_t prompts, std::uint32_t samples) {
  std::vector<Trajectory> work;
  for (std::uint32_t p = 0; p < prompts; ++p) {
    for (std::uint32_t s = 0; s < samples; ++s) {
      work.emplace_back();
      work.back().id = {p, s};
    }
  }
  return work;
}

/// The experts of a response where a position's is its token (BlockCheckingRunner).
inline std::vector<std::int16_t> routing_of(const Trajectory& t) {
  std::vector<TokenId> text = request(t.id.prompt, t.id.sample).prompt;
  text.insert(text.end(), t.tokens.begin(), t.tokens.end());
  const auto first = first_routed(t.id, text.size() - t.tokens.size());
  return {text.begin() + static_cast<std::ptrdiff_t>(first), text.end() - 1};
}

using Responses = std::map<RequestId, Trajectory>;

inline void expect_same(const Responses& a, const Responses& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [id, t] : a) {
    const Trajectory& other = b.at(id);
    ASSERT_EQ(t.tokens, other.tokens) << id.prompt << "/" << id.sample;
    ASSERT_EQ(t.logprob, other.logprob);
    ASSERT_EQ(t.sampling_logprob, other.sampling_logprob);
    ASSERT_EQ(t.kept, other.kept);
    ASSERT_EQ(t.kept_ids, other.kept_ids);
    ASSERT_EQ(t.top_ids, other.top_ids);
    ASSERT_EQ(t.top_logprob, other.top_logprob);
    ASSERT_EQ(t.finish_reason, other.finish_reason);
    ASSERT_EQ(t.routing, other.routing);
    if (t.routing.empty()) continue;
    ASSERT_EQ(t.routing, routing_of(t));
  }
}

}  // namespace paceline
