// For tests of exactness: draft models' memory becomes KV's and its own again by chance.
#pragma once

#include <random>

#include "runtime/policy/plan/draft_memory.hpp"

namespace paceline::policy {

/// Changes about once in so many steps.
class RandomDraftMemory final : public DraftMemoryPolicy {
 public:
  explicit RandomDraftMemory(std::uint64_t seed) : random_(seed) {}
  DraftMemoryChange decide(const DraftMemoryState& state) override {
    constexpr std::uint64_t kSteps = 6;  // often, also where a test's requests are short
    if (random_() % kSteps != 0) return DraftMemoryChange::none;
    return state.expanded ? DraftMemoryChange::contract : DraftMemoryChange::expand;
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace paceline::policy
