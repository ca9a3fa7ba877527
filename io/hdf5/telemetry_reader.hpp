// Reads the telemetry of a run that ended.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/recorded_telemetry.hpp"

namespace paceline::io {

/// `path`: a run's or a simulation's directory, or its telemetry.h5. Memory: what it returns, 120
/// bytes a step. Any one thread. Throws UsageError where there is none (the run still goes on, or
/// never was), IoError when it cannot be read, is damaged or of another schema version.
[[nodiscard]] RecordedTelemetry read_telemetry(const std::string& path);

/// What the run recorded of its head's draft trees (speculation.record_stops); none where it
/// recorded nothing. Throws likewise.
[[nodiscard]] std::vector<StopPoint> read_stop_points(const std::string& path);

}  // namespace paceline::io
