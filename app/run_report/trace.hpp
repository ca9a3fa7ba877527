// A run's telemetry as a trace for Perfetto and Chrome (chrome://tracing).
#pragma once

#include <string>

#include "runtime/core/recorded_telemetry.hpp"

namespace paceline::app {

/// Returns JSON in which each rank of each attempt (start or resume) is a process. Steps with their
/// parts, KV transfers and writes are on three threads of the process. Times are microseconds since
/// the first attempt began. Takes 300 to 500 bytes of memory for each step.
[[nodiscard]] std::string trace_of(const RecordedTelemetry& run);

}  // namespace paceline::app
