// A report as one JSON document, for scripts.
#pragma once

#include <string>
#include <vector>

#include "app/run_report/text.hpp"

namespace paceline::app {

/// {"schema_version": 1, "runs": [...]}: an object for each run, with a report's figures under
/// fixed names. Values are in seconds, tokens, bytes and shares (0 to 1); null: not known.
[[nodiscard]] std::string json_of(const std::vector<NamedRun>& runs);

}  // namespace paceline::app
