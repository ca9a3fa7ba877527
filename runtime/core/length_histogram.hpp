// Histograms of prompt and response lengths, pooled over many requests.
#pragma once

#include <cstdint>
#include <vector>

namespace paceline {

struct LengthBin {
  std::int32_t tokens = 0;  ///< at least 1
  double weight = 0;        ///< share of requests, in any unit; positive
};

/// Histograms by rising length.
struct LengthHistogram {
  std::vector<LengthBin> prompts;
  std::vector<LengthBin> responses;
};

}  // namespace paceline
