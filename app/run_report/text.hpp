// A report as tables for a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/run_report/figures.hpp"
#include "app/run_report/rewards.hpp"

namespace paceline::app {

/// A title and rows of cells, the first of which are names of columns. What both forms of a report
/// print.
struct Table {
  std::string title;
  std::vector<std::vector<std::string>> rows;
};

/// The tables of a run, in the order of a report; such without rows are left out.
[[nodiscard]] std::vector<Table> tables_of(const RunFigures& figures);
/// The run in a few lines: tokens, seconds, speed, reasons of ends, the largest loss.
[[nodiscard]] std::vector<std::string> headline_of(const RunFigures& figures);
/// Where a run has not ended: how much of it there is; else nothing.
[[nodiscard]] std::string progress_of(const std::optional<RewardFigures>& rewards);

/// Several runs side by side: one row each.
struct NamedRun {
  std::string name;
  RunFigures figures;
  std::optional<RewardFigures> rewards = {};  ///< absent: its responses are not known
};
[[nodiscard]] Table comparison_of(const std::vector<NamedRun>& runs);

/// All of it, in columns.
[[nodiscard]] std::string text_of(const std::vector<NamedRun>& runs);

}  // namespace paceline::app
