// A report as one JSON document, for scripts.
#pragma once

#include <string>
#include <vector>

#include "app/run_report/text.hpp"

namespace paceline::app {

/// {"schema_version": 1, "runs": [...]}, a run each, with the figures of a report under names that
/// stay. Seconds, tokens, bytes and shares (0 to 1) as they are; null where something is not known.
[[nodiscard]] std::string json_of(const std::vector<NamedRun>& runs);

}  // namespace paceline::app
