// A run's steps as a trace for Perfetto and Chrome (chrome://tracing).
#pragma once

#include <string>

#include "runtime/core/recorded_telemetry.hpp"

namespace paceline::app {

/// JSON in which each rank of each attempt is a process. Its steps contain their phases. KV
/// transfers and writes have threads of their own. Times are microseconds since the first attempt
/// began, by the clocks of the attempts. Memory: 300 bytes a step.
[[nodiscard]] std::string trace_of(const RecordedTelemetry& run);

}  // namespace paceline::app
