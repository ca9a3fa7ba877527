#include "io/run/run_replay.hpp"

#include <map>
#include <tuple>
#include <utility>

#include "io/hdf5/file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/run/shard_format.hpp"
#include "io/run/stored_run.hpp"
#include "io/telemetry/telemetry.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

/// Reads /acceptance and sums it over ranks and attempts.
std::vector<AcceptanceCell> read_acceptance(const h5::File& file, std::size_t drafters) {
  const auto key = [&file](const char* name) {
    return h5::read_all<std::uint32_t>(file, std::string("acceptance/") + name);
  };
  const auto drafter = key("drafter");
  const auto position = key("position");
  const auto batch = key("batch");
  const auto progress = key("progress");
  const auto drafted = h5::read_all<std::uint64_t>(file, "acceptance/drafted");
  const auto accepted = h5::read_all<std::uint64_t>(file, "acceptance/accepted");
  const std::size_t rows = drafter.size();
  bool sound = position.size() == rows && batch.size() == rows && progress.size() == rows &&
               drafted.size() == rows && accepted.size() == rows;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>, AcceptanceCell>
      cells;
  for (std::size_t i = 0; sound && i < rows; ++i) {
    sound = drafter[i] < drafters && accepted[i] <= drafted[i];
    AcceptanceCell& cell = cells[{drafter[i], position[i], batch[i], progress[i]}];
    cell = {drafter[i],
            position[i],
            batch[i],
            progress[i],
            cell.drafted + drafted[i],
            cell.accepted + accepted[i]};
  }
  if (!sound) throw IoError("cannot read " + file.path() + ":/acceptance: its columns are damaged");
  std::vector<AcceptanceCell> sums;
  sums.reserve(cells.size());
  for (const auto& [at, cell] : cells) sums.push_back(cell);
  return sums;
}

void read_telemetry(const std::string& path, RecordedRun& run) {
  const h5::File file = h5::File::open(path);
  std::int32_t version = 0;
  h5::read_attribute(file.id(), path, "schema_version", h5::native<std::int32_t>(), &version);
  if (version != kTelemetrySchemaVersion) {
    throw IoError("cannot read " + path + ": it is of schema version " + std::to_string(version) +
                  ", expected " + std::to_string(kTelemetrySchemaVersion));
  }
  run.drafters = h5::read_strings(file, "drafter_names");
  run.acceptance = read_acceptance(file, run.drafters.size());
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
  read_telemetry(telemetry, run);
  return run;
}

}  // namespace paceline::io
