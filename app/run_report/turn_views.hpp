// Turns of conversations in a report: tables, and plots for HTML.
#pragma once

#include <string>
#include <vector>

#include "app/run_report/text.hpp"

namespace paceline::app {

/// Tables: turns of responses, waits for answers, and KV that was stored meanwhile. A table for
/// which the run has no figures has no rows.
[[nodiscard]] std::vector<Table> turn_tables(const RunFigures& figures);
/// A plot of the number of responses by turns; empty: the run has no conversations.
[[nodiscard]] std::string turns_of_responses(const TurnFigures& figures);
/// A plot of each run's mean turns of a response; empty: fewer than two runs have conversations.
[[nodiscard]] std::string turn_curve(const std::vector<NamedRun>& runs);

}  // namespace paceline::app
