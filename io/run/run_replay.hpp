// Reader of a finished run for its replay in a model.
#pragma once

#include <string>

#include "runtime/core/recorded_run.hpp"

namespace paceline::io {

/// Reads DIR/trajectories.h5 and DIR/telemetry.h5. Memory: the result, 48 bytes a trajectory and
/// the rows of /acceptance. Any one thread. Throws UsageError when `directory` has no finished run,
/// IoError when it cannot be read, is damaged or has telemetry of another schema version.
[[nodiscard]] RecordedRun read_recorded_run(const std::string& directory);

}  // namespace paceline::io
