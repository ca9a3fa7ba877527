// The work of a finished run, from its files: enough to repeat it in a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/request.hpp"

namespace paceline {

struct RecordedRun {
  std::vector<Prompt> prompts;
  std::vector<std::vector<std::int32_t>> lengths;  ///< [prompt][sample] response tokens
  std::uint64_t vocabulary = 0;                    ///< token ids are below this
  std::vector<std::string> drafters;               ///< by AcceptanceCell::drafter
  /// Cells summed over ranks and attempts, by rising (drafter, position, batch, progress).
  std::vector<AcceptanceCell> acceptance;
};

}  // namespace paceline
