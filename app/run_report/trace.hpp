// A run's steps as a trace that Perfetto and Chrome (chrome://tracing) read.
#pragma once

#include <string>

#include "runtime/core/recorded_telemetry.hpp"

namespace paceline::app {

/// JSON. A process for each attempt and rank; in it its steps, each with its phases under it, and
/// what it sent or received of KV beside them. Times are microseconds since the first attempt
/// began, attempts where their clocks say. Memory: 300 bytes a step.
[[nodiscard]] std::string trace_of(const RecordedTelemetry& run);

}  // namespace paceline::app
