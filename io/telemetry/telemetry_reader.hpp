// Reader of a run's telemetry, in progress or finished.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/recorded_telemetry.hpp"

namespace paceline::io {

/// Reads telemetry. `path`: directory of a run or a simulation, or its telemetry.h5. A run in
/// progress, or stopped, is read from its shards. Unreadable shards become `warnings`. A rank that
/// has not ended has a summary with only its role and tokens. Memory: the result, 120 bytes a step.
/// Any one thread. Throws UsageError if there is no telemetry, IoError if it cannot be read, is
/// damaged or has another schema version.
[[nodiscard]] RecordedTelemetry read_telemetry(const std::string& path,
                                               std::vector<std::string>* warnings = nullptr);

/// Reads only the attempts, the drafters and their acceptance, of a finished run. Throws as
/// read_telemetry() does.
[[nodiscard]] RecordedTelemetry read_acceptance(const std::string& path);

/// Reads the draft trees recorded of the run's head (record_stops); empty: none were recorded.
/// Throws as read_telemetry() does.
[[nodiscard]] std::vector<StopPoint> read_stop_points(const std::string& path);

}  // namespace paceline::io
