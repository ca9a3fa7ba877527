#include "runtime/policy/plan/draft_memory.hpp"

#include <algorithm>

namespace paceline::policy {

DraftMemoryChange ElasticDraftMemory::decide(const DraftMemoryState& state) {
  const double scarce = std::max(kScarce * state.blocks, state.request);
  const bool speaks = state.expanded ? state.waiting == 0 && state.free > state.gain + scarce
                                     : !state.speculates && state.free < scarce;
  lasted_ = speaks ? lasted_ + 1 : std::max(0, lasted_ - 1);
  if (state.speculates) lasted_ = 0;
  if (lasted_ < kPersist) return DraftMemoryChange::none;
  lasted_ = 0;
  return state.expanded ? DraftMemoryChange::contract : DraftMemoryChange::expand;
}

}  // namespace paceline::policy
