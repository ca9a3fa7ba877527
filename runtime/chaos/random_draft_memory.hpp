// Random changes of draft models' memory to KV and back, for tests of exactness.
#pragma once

#include <random>

#include "runtime/policy/plan/draft_memory.hpp"

namespace paceline::chaos {

/// Asks for a change about once in kSteps steps.
class RandomDraftMemory final : public policy::DraftMemoryPolicy {
 public:
  explicit RandomDraftMemory(std::uint64_t seed) : random_(seed) {}
  policy::DraftMemoryChange decide(const policy::DraftMemoryState& state) override {
    constexpr std::uint64_t kSteps = 6;  // small, as a test's requests may be short
    if (random_() % kSteps != 0) return policy::DraftMemoryChange::none;
    return state.expanded ? policy::DraftMemoryChange::contract : policy::DraftMemoryChange::expand;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace paceline::chaos
