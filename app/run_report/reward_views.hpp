// Rewards in a report: tables, and plots for HTML.
#pragma once

#include <string>
#include <vector>

#include "app/run_report/text.hpp"

namespace paceline::app {

/// A row for each run whose responses are known, in the order of the runs, which may be the steps
/// of a training. No rows if no run has rewards.
[[nodiscard]] Table reward_table(const std::vector<NamedRun>& runs);
/// Tables of one run, in addition to its row of reward_table(). Tables without rows are left out.
[[nodiscard]] std::vector<Table> reward_tables(const RewardFigures& figures);
/// A plot of each run's mean reward, run by run; empty: fewer than two runs have rewards.
[[nodiscard]] std::string reward_curve(const std::vector<NamedRun>& runs);
/// A plot of the mean reward of responses of about the same length.
[[nodiscard]] std::string reward_by_length(const RewardFigures& figures);

}  // namespace paceline::app
