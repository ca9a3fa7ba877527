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

/// A title and rows of cells; the first row names the columns. Reports for a terminal and in HTML
/// have the same tables.
struct Table {
  std::string title;
  std::vector<std::vector<std::string>> rows;
};

/// The tables of a run, in the order of a report. Tables without data are left out.
[[nodiscard]] std::vector<Table> tables_of(const RunFigures& figures);
/// The run in a few lines: tokens, seconds, speed, why responses ended, the largest loss of time.
[[nodiscard]] std::vector<std::string> headline_of(const RunFigures& figures);
/// A line about the progress of an unfinished run; empty: it is complete, or `rewards` is nullopt.
[[nodiscard]] std::string progress_of(const std::optional<RewardFigures>& rewards);

/// A run in a report, which may compare several runs.
struct NamedRun {
  std::string name;
  RunFigures figures;
  std::optional<RewardFigures> rewards = {};  ///< nullopt: the run's responses are not known
  PicturedPrompts pictured = {};              ///< filled for a report in HTML
};
[[nodiscard]] Table comparison_of(const std::vector<NamedRun>& runs);

/// A line with the counts of dynamic sampling; empty: the run is unfinished or did not use it.
[[nodiscard]] std::string choice_of(const NamedRun& run);

/// The whole report, as text for a terminal.
[[nodiscard]] std::string text_of(const std::vector<NamedRun>& runs);

[[nodiscard]] std::string html_of(const std::vector<NamedRun>& runs);

/// The report as JSON, with an object for each run: {"schema_version": 1, "runs": [...]}. Names of
/// values are fixed. Values are in seconds, tokens, bytes and shares (0 to 1); null: not known.
[[nodiscard]] std::string json_of(const std::vector<NamedRun>& runs);

}  // namespace paceline::app
