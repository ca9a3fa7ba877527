#include <algorithm>
#include <cmath>
#include <compare>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <tuple>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/telemetry/telemetry.hpp"
#include "io/telemetry/telemetry_format.hpp"
#include "io/telemetry/telemetry_shards.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/recorded_telemetry.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

void write_unit(hid_t dataset, const h5::File& file, const char* unit) {
  h5::write_attribute(dataset, file.path(), "unit", std::string(unit));
}

/// A column of its own.
template <typename T>
void write_column(const h5::File& file, const std::string& name, const char* unit,
                  const std::vector<T>& values) {
  h5::Dataset column = h5::Dataset::create<T>(file, name, {values.size()});
  column.template append<T>(values);
  write_unit(column.id(), file, unit);
}

void write_texts(const h5::File& file, const std::string& name,
                 std::span<const std::string> values) {
  h5::write_strings(file, name, values);
  for (const std::string& part : {name, name + "_offsets"}) {
    const h5::Handle dataset(H5Dopen2(file.id(), part.c_str(), H5P_DEFAULT), H5Dclose);
    write_unit(dataset.get(), file, "bytes");
  }
}

/// Columns of `fields` for `rows` structs of `size` bytes, appended at `data`.
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

/// `fields` of a struct that stands first in a larger one, whose own members follow in `more`.
std::vector<h5::Field> widened(std::vector<h5::Field> more, const std::vector<h5::Field>& fields) {
  more.insert(more.end(), fields.begin(), fields.end());
  return more;
}

void write_steps(const h5::File& file, std::uint32_t rank,
                 const std::vector<TelemetryShard>& shards) {
  const std::string group = "ranks/" + std::to_string(rank);
  const h5::Handle rank_group = file.group(group.c_str());
  const h5::Handle steps_group = file.group((group + "/steps").c_str());
  std::uint64_t total = 0;
  for (const TelemetryShard& shard : shards) total += shard.steps;
  Columns columns(file, group + "/steps", step_fields(), total);
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

template <typename Row>
void write_of_ranks(const h5::File& file, const char* name, const std::vector<OfRank<Row>>& rows,
                    const std::vector<h5::Field>& fields_of_row) {
  const h5::Handle group = file.group(name);
  const hid_t u32 = h5::native<std::uint32_t>();
  const auto fields = widened({{"attempt", offsetof(OfRank<Row>, attempt), u32, "1"},
                               {"rank", offsetof(OfRank<Row>, rank), u32, "1"}},
                              fields_of_row);
  Columns(file, name, fields, rows.size()).append(rows.data(), rows.size(), sizeof(OfRank<Row>));
}

void write_events(const h5::File& file, std::vector<OfRank<RequestEvent>>& events) {
  sort_events(events);
  write_of_ranks(file, "requests", events, event_fields());
  const h5::Handle kind(H5Dopen2(file.id(), "requests/kind", H5P_DEFAULT), H5Dclose);
  const std::pair<const char*, RequestEventKind> names[] = {
      {"leased", RequestEventKind::leased},       {"finished", RequestEventKind::finished},
      {"stopped", RequestEventKind::stopped},     {"resumed", RequestEventKind::resumed},
      {"left", RequestEventKind::left},           {"arrived", RequestEventKind::arrived},
      {"planned", RequestEventKind::planned},     {"race_begun", RequestEventKind::race_begun},
      {"race_left", RequestEventKind::race_left}, {"race_won", RequestEventKind::race_won}};
  for (const auto& [name, value] : names) {
    h5::write_attribute(kind.get(), file.path(), name, static_cast<std::uint8_t>(value));
  }
  const h5::Handle mode(H5Dopen2(file.id(), "requests/mode", H5P_DEFAULT), H5Dclose);
  for (const SpeculationMode value :
       {SpeculationMode::plain, SpeculationMode::coupled, SpeculationMode::decoupled})
    h5::write_attribute(mode.get(), file.path(), name_of(value), static_cast<std::uint8_t>(value));
  const h5::Handle reason(H5Dopen2(file.id(), "requests/reason", H5P_DEFAULT), H5Dclose);
  for (const FinishReason value :
       {FinishReason::stop_id, FinishReason::length, FinishReason::stop_string,
        FinishReason::context, FinishReason::partial}) {
    h5::write_attribute(reason.get(), file.path(), name_of(value),
                        static_cast<std::uint8_t>(value));
  }
}

/// By (attempt, start).
template <typename Row>
void sort_by_start(std::vector<OfRank<Row>>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    if (a.attempt != b.attempt) return a.attempt < b.attempt;
    return std::strong_order(a.row.start, b.row.start) < 0;
  });
}

void write_transfers(const h5::File& file, std::vector<OfRank<TransferRecord>>& transfers) {
  sort_by_start(transfers);
  write_of_ranks(file, "transfers", transfers, transfer_fields());
}

void write_pool(const h5::File& file, std::vector<OfRank<KvPoolRecord>>& pool) {
  sort_by_start(pool);
  write_of_ranks(file, "kv_pool", pool, pool_fields());
  const h5::Handle use(H5Dopen2(file.id(), "kv_pool/use", H5P_DEFAULT), H5Dclose);
  const std::pair<const char*, KvPoolUse> names[] = {
      {"stored", KvPoolUse::stored}, {"restored", KvPoolUse::restored}, {"sent", KvPoolUse::sent}};
  for (const auto& [name, value] : names)
    h5::write_attribute(use.get(), file.path(), name, static_cast<std::uint8_t>(value));
}

void write_draft_memory(const h5::File& file,
                        const std::vector<OfRank<DraftMemoryRecord>>& changes) {
  using Kind = DraftMemoryRecord::Kind;
  write_of_ranks(file, "draft_memory", changes, draft_memory_fields());
  const h5::Handle kind(H5Dopen2(file.id(), "draft_memory/kind", H5P_DEFAULT), H5Dclose);
  const std::pair<const char*, Kind> names[] = {
      {"expanded", Kind::expanded}, {"contracted", Kind::contracted}, {"resumed", Kind::resumed}};
  for (const auto& [name, value] : names)
    h5::write_attribute(kind.get(), file.path(), name, static_cast<std::uint8_t>(value));
}

void write_scores(const h5::File& file, std::vector<OfRank<ScoreRecord>>& scores,
                  std::span<const std::string> outcome_names) {
  sort_by_start(scores);
  write_of_ranks(file, "scores", scores, score_fields());
  const h5::Handle outcome(H5Dopen2(file.id(), "scores/outcome", H5P_DEFAULT), H5Dclose);
  for (std::size_t i = 0; i < outcome_names.size(); ++i)
    h5::write_attribute(outcome.get(), file.path(), outcome_names[i], static_cast<std::uint8_t>(i));
}

void write_summaries(const h5::File& file, std::vector<OfRank<RankSummary>>& summaries) {
  std::stable_sort(summaries.begin(), summaries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.attempt, a.rank) < std::tie(b.attempt, b.rank);
  });
  const h5::Handle group = file.group("summary");
  const auto fields = widened(
      {{"attempt", offsetof(OfRank<RankSummary>, attempt), h5::native<std::uint32_t>(), "1"}},
      summary_fields());
  Columns(file, "summary", fields, summaries.size())
      .append(summaries.data(), summaries.size(), sizeof(OfRank<RankSummary>));
}

void write_attempts(const h5::File& file,
                    const std::map<std::uint32_t, CollectedAttempt>& attempts) {
  const h5::Handle group = file.group("attempts");
  std::vector<std::uint32_t> number;
  std::vector<std::uint32_t> ranks;
  std::vector<double> started;
  std::vector<double> ended;
  std::vector<std::string> plans;
  for (const auto& [attempt, row] : attempts) {
    number.push_back(attempt);
    ranks.push_back(row.ranks);
    started.push_back(row.started);
    ended.push_back(row.started + row.length);
    plans.push_back(row.plan);
  }
  write_column(file, "attempts/attempt", "1", number);
  write_column(file, "attempts/ranks", "ranks", ranks);
  write_column(file, "attempts/started", "s", started);
  write_column(file, "attempts/ended", "s", ended);
  write_texts(file, "attempts/plan", plans);
}

void write_processes(const h5::File& file, const std::vector<RecordedProcess>& processes) {
  const h5::Handle group = file.group("processes");
  std::vector<std::uint32_t> attempts;
  std::vector<std::uint32_t> ranks;
  std::vector<std::uint32_t> cores;
  std::vector<std::uint32_t> gpus;
  std::vector<std::string> hosts;
  for (const RecordedProcess& process : processes) {
    cores.push_back(process.cores);
    gpus.push_back(process.gpus);
    attempts.push_back(process.attempt);
    ranks.push_back(process.rank);
    hosts.push_back(process.host);
  }
  write_column(file, "processes/attempt", "1", attempts);
  write_column(file, "processes/rank", "1", ranks);
  write_column(file, "processes/cores", "cores", cores);
  write_column(file, "processes/gpus", "GPUs", gpus);
  write_texts(file, "processes/host", hosts);
}

void write_writes(const h5::File& file, std::vector<OfRank<WriteRecord>>& writes) {
  std::stable_sort(writes.begin(), writes.end(), [](const auto& a, const auto& b) {
    if (a.attempt != b.attempt || a.rank != b.rank)
      return std::tie(a.attempt, a.rank) < std::tie(b.attempt, b.rank);
    return std::strong_order(a.row.start, b.row.start) < 0;
  });
  write_of_ranks(file, "writes", writes, write_fields());
  const h5::Handle kind(H5Dopen2(file.id(), "writes/kind", H5P_DEFAULT), H5Dclose);
  using Kind = WriteRecord::Kind;
  const std::pair<const char*, Kind> names[] = {{"trajectories", Kind::trajectories},
                                                {"telemetry", Kind::telemetry},
                                                {"final_trajectories", Kind::final_trajectories},
                                                {"final_telemetry", Kind::final_telemetry}};
  for (const auto& [name, value] : names)
    h5::write_attribute(kind.get(), file.path(), name, static_cast<std::uint8_t>(value));
}

/// What the rank that merges has written since its shard was closed, this file so far included. How
/// long the attempt was.
double add_ending(const TelemetryEnding& ending, double began, CollectedTelemetry& all) {
  const auto attempt = all.attempts.find(ending.attempt);
  if (attempt == all.attempts.end()) return 0;  // its shards are lost
  std::vector<WriteRecord> written = ending.written;
  written.push_back({began, ending.clock->now() - began, WriteRecord::Kind::final_telemetry});
  for (const WriteRecord& record : written) {
    attempt->second.reaches(record.start + record.duration);
    all.writes.push_back({record, ending.attempt, ending.rank});
  }
  return attempt->second.length;
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
    write_events(file, all.events);
    write_transfers(file, all.transfers);
    write_pool(file, all.pool);
    write_draft_memory(file, all.draft_memory);
    write_of_ranks(file, "stop_points", all.stop_points, stop_point_fields());
    write_scores(file, all.scores, outcome_names);
    write_of_ranks(file, "roles", all.roles, role_fields());
    write_of_ranks(file, "acceptance", all.acceptance, acceptance_fields());
    write_texts(file, "drafter_names", all.drafter_names);
    write_texts(file, "role_names", role_names);
    write_summaries(file, all.summaries);
    write_processes(file, all.processes);
    if (ending) report.ended = add_ending(*ending, began, all);
    write_writes(file, all.writes);
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
