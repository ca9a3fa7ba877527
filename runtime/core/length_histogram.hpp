// How long prompts and responses were, pooled over many requests.
#pragma once

#include <cstdint>
#include <vector>

namespace paceline {

struct LengthBin {
  std::int32_t tokens = 0;  ///< at least 1
  double weight = 0;        ///< share of requests, in any unit; positive
};

/// Each by rising length.
struct LengthHistogram {
  std::vector<LengthBin> prompts;
  std::vector<LengthBin> responses;
};

}  // namespace paceline
