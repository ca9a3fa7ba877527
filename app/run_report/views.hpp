// Tables and SVG plots of rewards and of conversations for a report.
#pragma once

#include <string>
#include <vector>

#include "app/run_report/reports.hpp"

namespace paceline::app {

/// Three tables: turns of responses, waits for the environment's answers, and KV that the KV pool
/// held while requests waited. A table without data has only its row of column names.
[[nodiscard]] std::vector<Table> turn_tables(const RunFigures& figures);
/// A plot of the number of responses by number of turns; empty: the run has no conversations.
[[nodiscard]] std::string turns_of_responses(const TurnFigures& figures);
/// A plot of each run's mean number of turns; empty: fewer than two runs have conversations.
[[nodiscard]] std::string turn_curve(const std::vector<NamedRun>& runs);

/// A table of rewards: one row for each run whose `NamedRun::rewards` is set, in the order of
/// `runs`. A run without scored responses has dashes in its row. If no run has scored responses,
/// the table is empty, without even the column names.
[[nodiscard]] Table reward_table(const std::vector<NamedRun>& runs);
/// Tables of one run: pass@k, prompts by their rewards, and reward by length. Omits empty tables.
[[nodiscard]] std::vector<Table> reward_tables(const RewardFigures& figures);
/// A plot of each run's mean reward; empty: fewer than two runs have scored responses.
[[nodiscard]] std::string reward_curve(const std::vector<NamedRun>& runs);
/// A plot of mean rewards by response length; empty: no response is scored.
[[nodiscard]] std::string reward_by_length(const RewardFigures& figures);

}  // namespace paceline::app
