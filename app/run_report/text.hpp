// A report as tables for a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/run_report/figures.hpp"
#include "app/run_report/pictured.hpp"
#include "app/run_report/rewards.hpp"

namespace paceline::app {

/// A title and rows of cells; the first row names the columns. Reports for a terminal and reports
/// in HTML print the same tables.
struct Table {
  std::string title;
  std::vector<std::vector<std::string>> rows;
};

/// The tables of a run, in the order of a report; tables without rows are left out.
[[nodiscard]] std::vector<Table> tables_of(const RunFigures& figures);
/// The run in a few lines: tokens, seconds, speed, reasons of ends, the largest loss.
[[nodiscard]] std::vector<std::string> headline_of(const RunFigures& figures);
/// How much there is of a run that has not ended; empty for a run that has.
[[nodiscard]] std::string progress_of(const std::optional<RewardFigures>& rewards);

/// Several runs side by side: one row each.
struct NamedRun {
  std::string name;
  RunFigures figures;
  std::optional<RewardFigures> rewards = {};  ///< absent: its responses are not known
  PicturedPrompts pictured = {};              ///< of a report in HTML
};
[[nodiscard]] Table comparison_of(const std::vector<NamedRun>& runs);

/// What dynamic sampling kept, and what was generated besides; empty for a run without.
[[nodiscard]] std::string choice_of(const NamedRun& run);

/// The whole report.
[[nodiscard]] std::string text_of(const std::vector<NamedRun>& runs);

}  // namespace paceline::app
