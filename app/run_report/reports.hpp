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
/// A line about how much of an unfinished run is done; empty: the run is complete or not known.
[[nodiscard]] std::string progress_of(const std::optional<RewardFigures>& rewards);

/// One of several runs that a report compares.
struct NamedRun {
  std::string name;
  RunFigures figures;
  std::optional<RewardFigures> rewards = {};  ///< nullopt: the run's responses are not known
  PicturedPrompts pictured = {};              ///< filled for a report in HTML
};
[[nodiscard]] Table comparison_of(const std::vector<NamedRun>& runs);

/// A line with the counts of dynamic sampling; empty: the run has none.
[[nodiscard]] std::string choice_of(const NamedRun& run);

/// The whole report.
[[nodiscard]] std::string text_of(const std::vector<NamedRun>& runs);

[[nodiscard]] std::string html_of(const std::vector<NamedRun>& runs);

/// {"schema_version": 1, "runs": [...]}: an object for each run, with a report's figures under
/// fixed names. Values are in seconds, tokens, bytes and shares (0 to 1); null: not known.
[[nodiscard]] std::string json_of(const std::vector<NamedRun>& runs);

}  // namespace paceline::app
