// Reads the telemetry of a run, still going or not.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/recorded_telemetry.hpp"

namespace paceline::io {

/// `path`: a run's or a simulation's directory, or its telemetry.h5. Of a run that goes on, or was
/// stopped, what its shards hold: shards that cannot be read become `warnings`, and a rank that has
/// not ended has a summary of its role and tokens alone. Memory: what it returns, 120 bytes a step.
/// Any one thread. Throws UsageError where there is none, IoError when it cannot be read, is
/// damaged or of another schema version.
[[nodiscard]] RecordedTelemetry read_telemetry(const std::string& path,
                                               std::vector<std::string>* warnings = nullptr);

/// What the run recorded of its head's draft trees (speculation.record_stops); none where it
/// recorded nothing. Throws likewise.
[[nodiscard]] std::vector<StopPoint> read_stop_points(const std::string& path);

}  // namespace paceline::io
