#include <algorithm>
#include <cmath>
#include <compare>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <tuple>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/shard_format.hpp"
#include "io/hdf5/telemetry.hpp"
#include "io/hdf5/telemetry_format.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/recorded_telemetry.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kRowsAtOnce = 16384;  // of steps, in memory

/// What is known of a shard before its steps are copied.
struct Shard {
  ShardName name;
  std::uint64_t steps = 0;
};

struct Event {
  RequestEvent event;
  std::uint32_t attempt = 0;
  std::uint32_t rank = 0;
};

struct Summary {
  RankSummary summary;
  std::uint32_t attempt = 0;
};

struct Attempt {
  std::uint32_t ranks = 0;
  double started = 0;  // Unix time, seconds; the earliest of its ranks
  double length = 0;   // seconds, up to the last moment that any of them recorded
  std::string plan;

  void reaches(double moment) {  // damaged ones may be NaN
    if (std::isfinite(moment)) length = std::max(length, moment);
  }
};

struct Collected {
  std::map<std::uint32_t, std::vector<Shard>> ranks;  // shards in attempt order
  std::vector<Event> events;
  std::vector<OfRank<TransferRecord>> transfers;
  std::vector<OfRank<KvPoolRecord>> pool;
  std::vector<OfRank<ScoreRecord>> scores;
  std::vector<OfRank<DraftMemoryRecord>> draft_memory;  // by (attempt, rank), as the shards are
  std::vector<OfRank<StopPoint>> stop_points;           // likewise
  std::vector<OfRank<RoleRecord>> roles;                // likewise
  std::vector<OfRank<WriteRecord>> writes;              // likewise
  std::vector<RecordedProcess> processes;               // likewise
  std::vector<OfRank<AcceptanceCell>> acceptance;       // likewise
  std::vector<std::string> drafter_names;
  std::vector<Summary> summaries;
  std::map<std::uint32_t, Attempt> attempts;
};

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

/// Calls `use` with the steps of a shard, some at a time; how many there were.
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
void collect(const ShardName& name, Collected& all) {
  const h5::File file = h5::File::open(name.path);
  Attempt own;
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
  for (const auto& summary : summaries) all.summaries.push_back({summary, name.attempt});
  Attempt& attempt = all.attempts[name.attempt];
  attempt.started = attempt.ranks == 0 ? own.started : std::min(attempt.started, own.started);
  attempt.length = std::max(attempt.length, own.length);
  ++attempt.ranks;
  if (attempt.plan.empty()) attempt.plan = own.plan;
}

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

void write_steps(const h5::File& file, std::uint32_t rank, const std::vector<Shard>& shards) {
  const std::string group = "ranks/" + std::to_string(rank);
  const h5::Handle rank_group = file.group(group.c_str());
  const h5::Handle steps_group = file.group((group + "/steps").c_str());
  std::uint64_t total = 0;
  for (const Shard& shard : shards) total += shard.steps;
  Columns columns(file, group + "/steps", step_fields(), total);
  h5::Dataset attempts =
      h5::Dataset::create<std::uint32_t>(file, group + "/steps/attempt", {total});
  write_unit(attempts.id(), file, "1");
  for (const Shard& shard : shards) {
    read_steps(h5::File::open(shard.name.path), [&](std::span<const StepRecord> rows) {
      columns.append(rows.data(), rows.size(), sizeof(StepRecord));
      attempts.append<std::uint32_t>(std::vector(rows.size(), shard.name.attempt));
    });
  }
}

void write_events(const h5::File& file, std::vector<Event>& events) {
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    if (a.attempt != b.attempt) return a.attempt < b.attempt;
    return std::strong_order(a.event.time, b.event.time) < 0;  // damaged ones may be NaN
  });
  const h5::Handle group = file.group("requests");
  const hid_t u32 = h5::native<std::uint32_t>();
  const auto fields = widened(
      {{"attempt", offsetof(Event, attempt), u32, "1"}, {"rank", offsetof(Event, rank), u32, "1"}},
      event_fields());
  Columns(file, "requests", fields, events.size())
      .append(events.data(), events.size(), sizeof(Event));
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

void write_summaries(const h5::File& file, std::vector<Summary>& summaries) {
  std::stable_sort(summaries.begin(), summaries.end(), [](const Summary& a, const Summary& b) {
    return std::tie(a.attempt, a.summary.rank) < std::tie(b.attempt, b.summary.rank);
  });
  const h5::Handle group = file.group("summary");
  const auto fields =
      widened({{"attempt", offsetof(Summary, attempt), h5::native<std::uint32_t>(), "1"}},
              summary_fields());
  Columns(file, "summary", fields, summaries.size())
      .append(summaries.data(), summaries.size(), sizeof(Summary));
}

void write_attempts(const h5::File& file, const std::map<std::uint32_t, Attempt>& attempts) {
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

/// What the rank that merges has written since its shard was closed, this file so far included.
void add_ending(const TelemetryEnding& ending, double began, Collected& all) {
  const auto attempt = all.attempts.find(ending.attempt);
  if (attempt == all.attempts.end()) return;  // its shards are lost
  std::vector<WriteRecord> written = ending.written;
  written.push_back({began, ending.clock->now() - began, WriteRecord::Kind::final_telemetry});
  for (const WriteRecord& record : written) {
    attempt->second.reaches(record.start + record.duration);
    all.writes.push_back({record, ending.attempt, ending.rank});
  }
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
  Collected all;
  for (const ShardName& shard : list_shards(directory, "telemetry")) {
    try {
      collect(shard, all);
    } catch (const IoError& error) {
      report.warnings.push_back(std::string(error.what()) + "; what it held is left out");
    }
  }
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
    if (ending) add_ending(*ending, began, all);
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
