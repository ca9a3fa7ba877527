// For tests of exactness: draft models' memory becomes KV's and its own again by chance.
#pragma once

#include <random>

#include "runtime/policy/plan/draft_memory.hpp"

namespace paceline::chaos {

/// Changes about once in so many steps.
class RandomDraftMemory final : public policy::DraftMemoryPolicy {
 public:
  explicit RandomDraftMemory(std::uint64_t seed) : random_(seed) {}
  policy::DraftMemoryChange decide(const policy::DraftMemoryState& state) override {
    constexpr std::uint64_t kSteps = 6;  // often, also where a test's requests are short
    if (random_() % kSteps != 0) return policy::DraftMemoryChange::none;
    return state.expanded ? policy::DraftMemoryChange::contract : policy::DraftMemoryChange::expand;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace paceline::chaos
