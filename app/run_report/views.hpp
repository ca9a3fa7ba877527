// Tables and HTML plots of rewards and of conversations for a report.
#pragma once

#include <string>
#include <vector>

#include "app/run_report/reports.hpp"

namespace paceline::app {

/// Three tables: turns of responses, waits for answers, and KV that was stored meanwhile. A table
/// without data has only its row of column names.
[[nodiscard]] std::vector<Table> turn_tables(const RunFigures& figures);
/// A plot of the number of responses by number of turns; empty: the run has no conversations.
[[nodiscard]] std::string turns_of_responses(const TurnFigures& figures);
/// A plot of each run's mean number of turns; empty: fewer than two runs have conversations.
[[nodiscard]] std::string turn_curve(const std::vector<NamedRun>& runs);

/// A table with a row for each run whose responses are known, in the order of the runs. The table
/// has no rows if no run has rewards.
[[nodiscard]] Table reward_table(const std::vector<NamedRun>& runs);
/// Tables of one run, in addition to its row of reward_table(). Tables without rows are left out.
[[nodiscard]] std::vector<Table> reward_tables(const RewardFigures& figures);
/// A plot of each run's mean reward, run by run; empty: fewer than two runs have rewards.
[[nodiscard]] std::string reward_curve(const std::vector<NamedRun>& runs);
/// A plot of mean rewards by response length; empty: no response is scored.
[[nodiscard]] std::string reward_by_length(const RewardFigures& figures);

}  // namespace paceline::app
