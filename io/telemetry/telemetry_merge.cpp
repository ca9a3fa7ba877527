#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/telemetry/telemetry.hpp"
#include "io/telemetry/telemetry_shards.hpp"
#include "runtime/core/recorded_telemetry.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

void write_unit(hid_t dataset, const h5::File& file, const char* unit) {
  h5::write_attribute(dataset, file.path(), "unit", std::string(unit));
}

void write_texts(const h5::File& file, const std::string& name,
                 std::span<const std::string> values) {
  h5::write_strings(file, name, values);
  for (const std::string& part : {name, name + "_offsets"}) {
    h5::write_attribute_of(file, part, "unit", std::string("bytes"));
  }
}

/// Columns of `fields`, filled by append() from `rows` structs of `size` bytes at `data`.
class Columns {
 public:
  Columns(const h5::File& file, const std::string& group, std::vector<h5::Field> fields,
          std::uint64_t rows)
      : fields_(std::move(fields)) {
    for (const h5::Field& field : fields_) {
      const h5::Handle type = h5::type_of(field);
      widths_.push_back(H5Tget_size(type.get()));
      columns_.push_back(
          h5::Dataset::create(file, group + "/" + field.name, type.get(), type.get(), {rows}));
      if (field.unit != nullptr) write_unit(columns_.back().id(), file, field.unit);
    }
  }
  void append(const void* data, std::size_t rows, std::size_t size) {
    for (std::size_t c = 0; c < fields_.size(); ++c) {
      const std::size_t width = widths_[c];
      column_.resize(rows * width);
      const std::byte* from = static_cast<const std::byte*>(data) + fields_[c].offset;
      for (std::size_t i = 0; i < rows; ++i) {
        std::memcpy(column_.data() + i * width, from + i * size, width);
      }
      columns_[c].append(rows, column_.data());
    }
  }

 private:
  std::vector<h5::Field> fields_;
  std::vector<std::size_t> widths_;  // [fields] bytes of a value
  std::vector<h5::Dataset> columns_;
  std::vector<std::byte> column_;
};

/// Writes the columns of a record type into an existing group.
template <typename Row>
void write_columns(const h5::File& file, const char* group, const std::vector<Row>& rows) {
  Columns(file, group, fields_of<Row>(), rows.size()).append(rows.data(), rows.size(), sizeof(Row));
}

void write_steps(const h5::File& file, std::uint32_t rank,
                 const std::vector<TelemetryShard>& shards) {
  const std::string group = "ranks/" + std::to_string(rank);
  const h5::Handle rank_group = file.group(group.c_str());
  const h5::Handle steps_group = file.group((group + "/steps").c_str());
  std::uint64_t total = 0;
  for (const TelemetryShard& shard : shards) total += shard.steps;
  Columns columns(file, group + "/steps", fields_of<StepRecord>(), total);
  h5::Dataset attempts =
      h5::Dataset::create<std::uint32_t>(file, group + "/steps/attempt", {total});
  write_unit(attempts.id(), file, "1");
  for (const TelemetryShard& shard : shards) {
    read_shard_steps(shard.name.path, [&](std::span<const StepRecord> rows) {
      columns.append(rows.data(), rows.size(), sizeof(StepRecord));
      attempts.append<std::uint32_t>(std::vector(rows.size(), shard.name.attempt));
    });
  }
}

/// Writes a group with the columns of a record type, and with attempt and rank of each row.
template <typename Row>
void write_rows(const h5::File& file, const Rows<Row>& rows, const char* name = kTable<Row>) {
  const h5::Handle group = file.group(name);
  const hid_t u32 = h5::native<std::uint32_t>();
  std::vector<h5::Field> fields{{"attempt", offsetof(OfRank<Row>, attempt), u32, "1"}};
  if constexpr (!requires(Row row) { row.rank; })
    fields.push_back({"rank", offsetof(OfRank<Row>, rank), u32, "1"});
  for (const h5::Field& field : fields_of<Row>()) fields.push_back(field);
  Columns(file, name, fields, rows.size()).append(rows.data(), rows.size(), sizeof(OfRank<Row>));
}

/// Names the values 0, 1 and so on of a column.
void name_values(const h5::File& file, const char* column, const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    h5::write_attribute_of(file, column, names[i], static_cast<std::uint8_t>(i));
}

void write_events(const h5::File& file, Rows<RequestEvent>& events) {
  sort_events(events);
  write_rows(file, events, "requests");
  name_values(file, "requests/kind",
              {"leased", "finished", "stopped", "resumed", "left", "arrived", "race_begun",
               "race_left", "race_won", "turn_ended", "answered"});
  for (const FinishReason reason : kFinishReasons)
    h5::write_attribute_of(file, "requests/reason", name_of(reason),
                           static_cast<std::uint8_t>(reason));
}

/// Sorts by (attempt, start).
template <typename Row>
void sort_by_start(Rows<Row>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    if (a.attempt != b.attempt) return a.attempt < b.attempt;
    return std::strong_order(a.row.start, b.row.start) < 0;
  });
}

void write_pool(const h5::File& file, Rows<KvPoolRecord>& pool) {
  sort_by_start(pool);
  write_rows(file, pool);
  name_values(file, "kv_pool/use", {"stored", "restored", "sent"});
}

void write_draft_memory(const h5::File& file, const Rows<DraftMemoryRecord>& changes) {
  write_rows(file, changes);
  name_values(file, "draft_memory/kind", {"expanded", "contracted", "resumed"});
}

void write_scores(const h5::File& file, Rows<ScoreRecord>& scores,
                  std::span<const std::string> outcome_names) {
  sort_by_start(scores);
  write_rows(file, scores);
  name_values(file, "scores/outcome", {outcome_names.begin(), outcome_names.end()});
}

/// Sorts by (attempt, rank), keeping the order of rows within each.
template <typename Row>
void sort_by_rank(Rows<Row>& rows) {
  std::ranges::stable_sort(rows, {},
                           [](const auto& row) { return std::tie(row.attempt, row.rank); });
}

void write_attempts(const h5::File& file,
                    const std::map<std::uint32_t, CollectedAttempt>& attempts) {
  const h5::Handle group = file.group("attempts");
  std::vector<RecordedAttempt> rows;
  std::vector<std::string> plans;
  for (const auto& [number, attempt] : attempts) {
    rows.push_back(recorded(number, attempt));
    plans.push_back(attempt.plan);
  }
  write_columns(file, "attempts", rows);
  write_texts(file, "attempts/plan", plans);
}

void write_processes(const h5::File& file, const std::vector<RecordedProcess>& processes) {
  const h5::Handle group = file.group("processes");
  std::vector<std::string> hosts;
  for (const RecordedProcess& process : processes) hosts.push_back(process.host);
  write_columns(file, "processes", processes);
  write_texts(file, "processes/host", hosts);
}

void write_writes(const h5::File& file, Rows<WriteRecord>& writes) {
  sort_by_start(writes);
  sort_by_rank(writes);
  write_rows(file, writes);
  name_values(file, "writes/kind",
              {"trajectories", "telemetry", "final_trajectories", "final_telemetry"});
}

/// Adds the writes of the merging rank since its shard was closed, and the writing of this file so
/// far. Returns the length of the attempt.
double add_ending(const TelemetryEnding& ending, double began, CollectedTelemetry& all) {
  const auto attempt = all.attempts.find(ending.attempt);
  if (attempt == all.attempts.end()) return 0;  // its shards are lost
  std::vector<WriteRecord> written = ending.written;
  written.push_back({began, ending.clock->now() - began, WriteRecord::Kind::final_telemetry});
  for (const WriteRecord& record : written) {
    attempt->second.reaches(record.start + record.duration);
    all.of<WriteRecord>().push_back({record, ending.attempt, ending.rank});
  }
  // Computed from the times in the file, which are rounded, so that reports on the file agree.
  const CollectedAttempt& row = attempt->second;
  return row.started + row.length - row.started;
}

}  // namespace

TelemetryReport write_telemetry(const std::string& directory,
                                std::span<const std::string> role_names,
                                std::span<const std::string> outcome_names,
                                const std::optional<TelemetryEnding>& ending) {
  const double began = ending ? ending->clock->now() : 0;
  const auto lock = h5::lock_hdf5();
  TelemetryReport report;
  report.path = (fs::path(directory) / kTelemetryName).string();
  if (fs::exists(report.path)) return report;
  CollectedTelemetry all = collect_telemetry(directory, report.warnings);
  h5::File file = h5::File::create(report.path, h5::File::Kind::final);
  try {
    h5::write_attribute(file.id(), file.path(), "schema_version", kTelemetrySchemaVersion);
    const h5::Handle ranks_group = file.group("ranks");
    for (const auto& [rank, own] : all.ranks) write_steps(file, rank, own);
    write_events(file, all.of<RequestEvent>());
    sort_by_start(all.of<TransferRecord>());
    write_rows(file, all.of<TransferRecord>());
    write_pool(file, all.of<KvPoolRecord>());
    write_draft_memory(file, all.of<DraftMemoryRecord>());
    write_rows(file, all.of<StopPoint>());
    write_scores(file, all.of<ScoreRecord>(), outcome_names);
    write_rows(file, all.of<RoleRecord>());
    write_rows(file, all.of<AcceptanceCell>());
    write_texts(file, "drafter_names", all.drafter_names);
    write_texts(file, "role_names", role_names);
    sort_by_rank(all.of<RankSummary>());
    write_rows(file, all.of<RankSummary>());
    write_processes(file, all.processes);
    if (ending) report.ended = add_ending(*ending, began, all);
    write_writes(file, all.of<WriteRecord>());
    write_attempts(file, all.attempts);
    file.close();
    commit_temporary(report.path);
  } catch (...) {
    file.abandon();
    discard_temporary(report.path);
    throw;
  }
  return report;
}

}  // namespace paceline::io
