// The clock and the telemetry sink with which a rank's steps and transfers are recorded.
#pragma once

#include "runtime/core/clock.hpp"
#include "runtime/core/interfaces.hpp"

namespace paceline::roles {

/// Clock and sink outlive the recorder's users. Both are null if nothing is recorded.
struct Recorder {
  const Clock* clock = nullptr;
  TelemetrySink* telemetry = nullptr;
  [[nodiscard]] double now() const { return clock != nullptr ? clock->now() : 0; }
};

}  // namespace paceline::roles
