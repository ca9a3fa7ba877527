// Reports of runs in three forms: tables for a terminal, one JSON document for programs, and one
// HTML file with tables and plots, without JavaScript or links to other files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/run_report/figures.hpp"
#include "app/run_report/pictured.hpp"
#include "app/run_report/rewards.hpp"

namespace paceline::app {

/// A title and rows of cells. The first row has the names of the columns. Reports for a terminal
/// and in HTML have the same tables.
struct Table {
  std::string title;
  std::vector<std::vector<std::string>> rows;
};

/// The tables of a run's `figures`, in the order of a report. Tables without data are left out.
[[nodiscard]] std::vector<Table> tables_of(const RunFigures& figures);
/// A few lines about a run: for example its tokens, seconds and largest loss of time.
[[nodiscard]] std::vector<std::string> headline_of(const RunFigures& figures);
/// A line about an unfinished run's progress; empty: the run is complete, or `rewards` is nullopt.
[[nodiscard]] std::string progress_of(const std::optional<RewardFigures>& rewards);

/// One of the runs in a report.
struct NamedRun {
  std::string name;
  RunFigures figures;
  std::optional<RewardFigures> rewards = {};  ///< nullopt: a simulation, or unreadable responses
  PicturedPrompts pictured = {};              ///< filled only for a report in HTML
};
[[nodiscard]] Table comparison_of(const std::vector<NamedRun>& runs);

/// A line with the counts of dynamic sampling; empty: `run` has no RewardFigures::choice.
[[nodiscard]] std::string choice_of(const NamedRun& run);

/// The whole report, as text for a terminal.
[[nodiscard]] std::string text_of(const std::vector<NamedRun>& runs);

[[nodiscard]] std::string html_of(const std::vector<NamedRun>& runs);

/// The report as JSON: {"schema_version": 1, "runs": [...]}, with an object for each run. Keys are
/// fixed within a schema version. Shares are 0 to 1; null: not known, or there is no such value.
[[nodiscard]] std::string json_of(const std::vector<NamedRun>& runs);

}  // namespace paceline::app
