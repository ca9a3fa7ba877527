// Histograms of prompt and response lengths, as ServeGen's model of a production workload becomes
// when it is pooled over its clients:
//
//   field,tokens,weight
//   input_tokens,4,0.0080288345
//   ...
//   output_tokens,9,1.72041235e-06
//
// Within a field tokens rise. Weights are shares in any unit; they need not sum to one.
#pragma once

#include <string>

#include "runtime/core/length_histogram.hpp"

namespace paceline::io {

/// Throws DataError("file:line: ...") on what is no such histogram, saying what was expected and
/// what was found, and when there is no such file; IoError when it cannot be read. Thread-safe.
[[nodiscard]] LengthHistogram read_length_histogram(const std::string& path);

}  // namespace paceline::io
