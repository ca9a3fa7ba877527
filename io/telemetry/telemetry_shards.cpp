#include "io/telemetry/telemetry_shards.hpp"

#include <compare>
#include <utility>

#include "io/hdf5/file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/telemetry/telemetry_format.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::uint64_t kRowsAtOnce = 16384;  // of steps, in memory

template <typename Row>
std::vector<Row> read_rows(const h5::File& file, const char* name,
                           const std::vector<h5::Field>& fields) {
  const h5::Handle type = h5::compound(fields, sizeof(Row));
  const h5::Dataset dataset = h5::Dataset::open(file, name, type.get(), 0);
  std::vector<Row> rows(dataset.size());
  dataset.read(0, rows.size(), rows.data());
  return rows;
}

/// The number of `name` among `names`, where it is added when it is new.
std::uint32_t number_of(const std::string& name, std::vector<std::string>& names) {
  const auto found = std::find(names.begin(), names.end(), name);
  const auto number = static_cast<std::uint32_t>(found - names.begin());
  if (found == names.end()) names.push_back(name);
  return number;
}

/// A shard's cells, with its own numbers for drafters.
std::vector<AcceptanceCell> read_acceptance(const h5::File& file,
                                            std::span<const std::string> drafter_names) {
  auto cells = read_rows<AcceptanceCell>(file, "acceptance", acceptance_fields());
  for (const AcceptanceCell& cell : cells) {
    if (cell.drafter >= drafter_names.size()) {
      throw IoError(file.path() + ":/acceptance: drafter " + std::to_string(cell.drafter) + " of " +
                    std::to_string(drafter_names.size()));
    }
  }
  return cells;
}

std::uint64_t read_steps(const h5::File& file,
                         const std::function<void(std::span<const StepRecord>)>& use) {
  const h5::Handle type = h5::compound(step_fields(), sizeof(StepRecord));
  const h5::Dataset steps = h5::Dataset::open(file, "steps", type.get(), 0);
  std::vector<StepRecord> rows;
  for (std::uint64_t done = 0; done < steps.size(); done += rows.size()) {
    rows.resize(std::min(kRowsAtOnce, steps.size() - done));
    steps.read(done, rows.size(), rows.data());
    use(rows);
  }
  return steps.size();
}

/// Adds a shard to `all`; nothing of it when something in it cannot be read.
void collect(const ShardName& name, CollectedTelemetry& all) {
  const h5::File file = h5::File::open(name.path);
  CollectedAttempt own;
  const std::uint64_t steps = read_steps(file, [&own](std::span<const StepRecord> rows) {
    for (const StepRecord& step : rows) own.reaches(step.start + step.duration);
  });
  const auto events = read_rows<RequestEvent>(file, "events", event_fields());
  const auto transfers = read_rows<TransferRecord>(file, "transfers", transfer_fields());
  const auto pool = read_rows<KvPoolRecord>(file, "kv_pool", pool_fields());
  const auto draft_memory =
      read_rows<DraftMemoryRecord>(file, "draft_memory", draft_memory_fields());
  const auto stop_points = read_rows<StopPoint>(file, "stop_points", stop_point_fields());
  const auto scores = read_rows<ScoreRecord>(file, "scores", score_fields());
  const auto roles = read_rows<RoleRecord>(file, "roles", role_fields());
  const auto writes = read_rows<WriteRecord>(file, "writes", write_fields());
  const auto summaries = read_rows<RankSummary>(file, "summary", summary_fields());
  const auto drafter_names = h5::read_strings(file, "drafter_names");
  const auto acceptance = read_acceptance(file, drafter_names);
  h5::read_attribute(file.id(), file.path(), "started", h5::native<double>(), &own.started);
  RecordedProcess process;
  process.attempt = name.attempt;
  process.rank = name.rank;
  process.host = h5::read_string_attribute(file.id(), file.path(), "host");
  h5::read_attribute(file.id(), file.path(), "cores", h5::native<std::uint32_t>(), &process.cores);
  h5::read_attribute(file.id(), file.path(), "gpus", h5::native<std::uint32_t>(), &process.gpus);
  own.plan = h5::read_string_attribute(file.id(), file.path(), "plan");
  for (const auto& event : events) own.reaches(event.time);
  for (const auto& role : roles) own.reaches(role.start + role.preparing);
  const auto reaches_end_of = [&own](const auto& records) {
    for (const auto& record : records) own.reaches(record.start + record.duration);
  };
  reaches_end_of(transfers);
  reaches_end_of(pool);
  reaches_end_of(draft_memory);
  reaches_end_of(scores);
  reaches_end_of(writes);

  all.ranks[name.rank].push_back({name, steps});
  for (const auto& event : events) all.events.push_back({event, name.attempt, name.rank});
  for (const auto& transfer : transfers)
    all.transfers.push_back({transfer, name.attempt, name.rank});
  for (const auto& use : pool) all.pool.push_back({use, name.attempt, name.rank});
  for (const auto& change : draft_memory)
    all.draft_memory.push_back({change, name.attempt, name.rank});
  for (const auto& point : stop_points) all.stop_points.push_back({point, name.attempt, name.rank});
  for (const auto& score : scores) all.scores.push_back({score, name.attempt, name.rank});
  for (const auto& role : roles) all.roles.push_back({role, name.attempt, name.rank});
  for (const auto& write : writes) all.writes.push_back({write, name.attempt, name.rank});
  all.processes.push_back(std::move(process));
  std::vector<std::uint32_t> drafter;
  for (const auto& known : drafter_names) drafter.push_back(number_of(known, all.drafter_names));
  for (AcceptanceCell cell : acceptance) {
    cell.drafter = drafter[cell.drafter];
    all.acceptance.push_back({cell, name.attempt, name.rank});
  }
  for (const auto& summary : summaries)
    all.summaries.push_back({summary, name.attempt, summary.rank});
  CollectedAttempt& attempt = all.attempts[name.attempt];
  attempt.started = attempt.ranks == 0 ? own.started : std::min(attempt.started, own.started);
  attempt.length = std::max(attempt.length, own.length);
  ++attempt.ranks;
  if (attempt.plan.empty()) attempt.plan = own.plan;
}

}  // namespace

std::uint64_t read_shard_steps(const std::string& path,
                               const std::function<void(std::span<const StepRecord>)>& use) {
  return read_steps(h5::File::open(path), use);
}

CollectedTelemetry collect_telemetry(const std::string& directory,
                                     std::vector<std::string>& warnings) {
  CollectedTelemetry all;
  for (const ShardName& shard : list_shards(directory, "telemetry")) {
    try {
      collect(shard, all);
    } catch (const IoError& error) {
      warnings.push_back(std::string(error.what()) + "; what it held is left out");
    }
  }
  return all;
}

void sort_events(std::vector<OfRank<RequestEvent>>& events) {
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
    if (a.attempt != b.attempt) return a.attempt < b.attempt;
    return std::strong_order(a.row.time, b.row.time) < 0;  // damaged ones may be NaN
  });
}

}  // namespace paceline::io
