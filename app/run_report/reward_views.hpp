// Rewards as a report shows them: tables, and pictures of its HTML.
#pragma once

#include <string>
#include <vector>

#include "app/run_report/text.hpp"

namespace paceline::app {

/// A row for each run whose responses are known, in the order of the runs: the steps of a training.
/// No rows where no run has rewards.
[[nodiscard]] Table reward_table(const std::vector<NamedRun>& runs);
/// Further tables of one run, beside its row above; tables without rows are left out.
[[nodiscard]] std::vector<Table> reward_tables(const RewardFigures& figures);
/// The mean reward of each run, run by run; empty where fewer than two runs have rewards.
[[nodiscard]] std::string reward_curve(const std::vector<NamedRun>& runs);
/// The mean reward of responses of about the same length.
[[nodiscard]] std::string reward_by_length(const RewardFigures& figures);

}  // namespace paceline::app
