// A run's steps as a trace that Perfetto and Chrome (chrome://tracing) read.
#pragma once

#include <string>

#include "runtime/core/recorded_telemetry.hpp"

namespace paceline::app {

/// JSON. Each rank of each attempt is a process of the trace. It has the rank's steps, under each
/// step its phases, and beside the steps the rank's KV transfers and writes. Times are microseconds
/// since the first attempt began, by the clocks of the attempts. Memory: 300 bytes a step.
[[nodiscard]] std::string trace_of(const RecordedTelemetry& run);

}  // namespace paceline::app
