// Turns of conversations as a report shows them: tables, and pictures of its HTML.
#pragma once

#include <string>
#include <vector>

#include "app/run_report/text.hpp"

namespace paceline::app {

/// How many turns responses took, how long they waited for answers, and what KV was stored
/// meanwhile; tables of which nothing is known have no rows.
[[nodiscard]] std::vector<Table> turn_tables(const RunFigures& figures);
/// Responses by their turns; empty for a run without conversations.
[[nodiscard]] std::string turns_of_responses(const TurnFigures& figures);
/// Turns a response, run by run; empty where fewer than two runs have conversations.
[[nodiscard]] std::string turn_curve(const std::vector<NamedRun>& runs);

}  // namespace paceline::app
