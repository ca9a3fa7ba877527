#include "io/run/run_replay.hpp"

#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "io/hdf5/file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/run/stored_run.hpp"
#include "io/telemetry/telemetry_reader.hpp"

namespace paceline::io {
namespace {

/// Sums acceptance over ranks and attempts.
std::vector<AcceptanceCell> sum_acceptance(std::span<const OfRank<AcceptanceCell>> rows) {
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>, AcceptanceCell>
      cells;
  for (const auto& [row, attempt, rank] : rows) {
    AcceptanceCell& cell = cells[{row.drafter, row.position, row.batch, row.progress}];
    const AcceptanceCell before = cell;
    cell = row;
    cell.drafted += before.drafted;
    cell.accepted += before.accepted;
  }
  std::vector<AcceptanceCell> sums;
  sums.reserve(cells.size());
  for (const auto& [at, cell] : cells) sums.push_back(cell);
  return sums;
}

}  // namespace

RecordedRun read_recorded_run(const std::string& directory) {
  const auto lock = h5::lock_hdf5();
  StoredRun stored = open_finished_run(directory);
  const std::string telemetry = file_of_run(directory, kTelemetryName);
  RecordedRun run;
  run.vocabulary = stored.manifest.vocabulary;
  run.prompts = std::move(stored.prompts);
  run.lengths.resize(run.prompts.size());
  for (const StoredResponse& entry : stored.finished)
    run.lengths[entry.prompt].push_back(static_cast<std::int32_t>(entry.length));
  RecordedTelemetry drafting = read_acceptance(telemetry);
  run.drafters = std::move(drafting.drafters);
  run.acceptance = sum_acceptance(drafting.acceptance);
  return run;
}

}  // namespace paceline::io
