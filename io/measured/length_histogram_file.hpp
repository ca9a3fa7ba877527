// Histograms of prompt and response lengths: ServeGen's model of a production workload, with its
// clients pooled.
//
//   field,tokens,weight
//   input_tokens,4,0.0080288345
//   ...
//   output_tokens,9,1.72041235e-06
//
// Within a field, tokens rise. Weights are shares in any unit; their sum need not be one.
#pragma once

#include <string>

#include "runtime/core/length_histogram.hpp"

namespace paceline::io {

/// Reads a histogram. Throws DataError("file: line N: ...") with the expected and the found text on
/// anything else, or if the file does not exist; IoError if it cannot be read. Thread-safe.
[[nodiscard]] LengthHistogram read_length_histogram(const std::string& path);

}  // namespace paceline::io
