#include "runtime/draft/draft_sequences.hpp"

#include <algorithm>
#include <stdexcept>

namespace paceline::draft {

DraftSequencesOptions checked(const DraftSequencesOptions& o) {
  if (o.max_requests < 1 || o.kv_block < 16 || o.kv_block % 16 != 0 || o.kv_blocks < 1 ||
      o.max_position < 1 || o.prefill_chunk < 0 || o.width < 1 || o.logit_rows < 1) {
    throw std::invalid_argument("options of a draft model's sequences");
  }
  return o;
}

bool DraftSequences::knows(std::span<const TokenId> tokens) const {
  return std::all_of(tokens.begin(), tokens.end(),
                     [&](TokenId token) { return token >= 0 && token < vocab(); });
}

}  // namespace paceline::draft
