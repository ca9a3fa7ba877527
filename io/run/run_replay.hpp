// Reader of a finished run, for its replay in a simulation.
#pragma once

#include <string>

#include "runtime/core/recorded_run.hpp"

namespace paceline::io {

/// Reads DIR/trajectories.h5 and DIR/telemetry.h5. Memory: the result, 48 bytes a trajectory and
/// the rows of /acceptance. Any one thread. Throws UsageError if `directory` has no finished run,
/// and IoError if it cannot be read, is damaged or has telemetry of another schema version.
[[nodiscard]] RecordedRun read_recorded_run(const std::string& directory);

}  // namespace paceline::io
