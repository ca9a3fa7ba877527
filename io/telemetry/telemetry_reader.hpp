// Reader of a run's telemetry, in progress or finished.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/recorded_telemetry.hpp"

namespace paceline::io {

/// Reads telemetry. `path`: a run's or a simulation's directory, or its telemetry.h5. A run in
/// progress, or stopped, is read from its shards: unreadable shards become `warnings`, and a rank
/// that has not ended has a summary of its role and tokens alone. Memory: the result, 120 bytes a
/// step. Any one thread. Throws UsageError where there is no telemetry, IoError when it cannot be
/// read, is damaged or of another schema version.
[[nodiscard]] RecordedTelemetry read_telemetry(const std::string& path,
                                               std::vector<std::string>* warnings = nullptr);

/// Reads the recorded draft trees of the run's head (record_stops); empty where none
/// were recorded. Throws likewise.
[[nodiscard]] std::vector<StopPoint> read_stop_points(const std::string& path);

}  // namespace paceline::io
