// When requests of a benchmark arrive.
#pragma once

#include <string>
#include <vector>

namespace paceline::bench {

/// [count] Seconds from the start, rising. `how`: "once", all at the start; "poisson:RATE", so many
/// a second; or "FILE.csv" or "FILE.csv:SPEED", the first of a trace with the columns of Azure's
/// (TIMESTAMP as 2023-11-16 18:17:03.9799600), so many times as fast. Throws std::invalid_argument
/// on anything else, and on a file that cannot be read as such or has fewer.
[[nodiscard]] std::vector<double> arrivals(const std::string& how, int count);

}  // namespace paceline::bench
