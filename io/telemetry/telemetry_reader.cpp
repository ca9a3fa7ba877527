#include "io/telemetry/telemetry_reader.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include "io/hdf5/file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/telemetry/telemetry.hpp"
#include "io/telemetry/telemetry_shards.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/parse_number.hpp"
#include "runtime/core/role.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void damaged(const h5::File& file, const std::string& group) {
  throw IoError("cannot read " + file.path() + ":/" + group + ": its columns are damaged");
}

/// Reads GROUP/FIELD into this member of each row. If `first`, resizes `rows` to the column.
template <typename Row>
void read_column(const h5::File& file, const std::string& group, const h5::Field& field, bool first,
                 std::vector<Row>& rows) {
  const h5::Handle type = h5::type_of(field);
  const h5::Dataset column =
      h5::Dataset::open(file, group + "/" + field.name, type.get(), std::size_t{1} << 20);
  if (first) rows.resize(column.size());
  if (column.size() != rows.size()) damaged(file, group);
  const std::size_t width = H5Tget_size(type.get());
  std::vector<std::byte> values(rows.size() * width);
  column.read(0, rows.size(), values.data());
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::memcpy(reinterpret_cast<std::byte*>(&rows[i]) + field.offset, values.data() + i * width,
                width);
}

/// Reads a group with the columns of a record type, and with attempt and rank of each row.
template <typename Row>
Rows<Row> read_rows(const h5::File& file, const std::string& group = kTable<Row>) {
  static_assert(offsetof(OfRank<Row>, row) == 0);
  const hid_t u32 = h5::native<std::uint32_t>();
  std::vector<h5::Field> fields = fields_of<Row>();
  fields.push_back({"attempt", offsetof(OfRank<Row>, attempt), u32});
  if constexpr (!std::is_same_v<Row, StepRecord> && !std::is_same_v<Row, RankSummary>)
    fields.push_back({"rank", offsetof(OfRank<Row>, rank), u32});
  Rows<Row> rows;
  for (const h5::Field& field : fields)
    read_column(file, group, field, &field == fields.data(), rows);
  return rows;
}

/// The rows, if each is of an attempt that the file tells of.
template <typename Row>
Rows<Row> read_rows_of(const h5::File& file, std::span<const RecordedAttempt> attempts,
                       const std::string& group = kTable<Row>) {
  Rows<Row> rows = read_rows<Row>(file, group);
  for (const OfRank<Row>& row : rows) {
    if (std::ranges::find(attempts, row.attempt, &RecordedAttempt::attempt) == attempts.end())
      damaged(file, group);
  }
  return rows;
}

/// Reads a group with the columns of a record type and, into `text` of each row, those strings.
template <typename Row>
std::vector<Row> read_with_texts(const h5::File& file, const std::string& group, const char* name,
                                 std::string Row::*text) {
  const std::vector<h5::Field> fields = fields_of<Row>();
  std::vector<Row> rows;
  for (const h5::Field& field : fields)
    read_column(file, group, field, &field == fields.data(), rows);
  std::vector<std::string> texts = h5::read_strings(file, group + "/" + name);
  if (texts.size() != rows.size()) damaged(file, group);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].*text = std::move(texts[i]);
  return rows;
}

/// The numbers of the groups in /ranks, ascending.
std::vector<std::uint32_t> ranks_of(const h5::File& file) {
  const h5::Handle group(H5Gopen2(file.id(), "ranks", H5P_DEFAULT), H5Gclose);
  h5::must(group.get(), "read", file.path() + ":/ranks");
  std::vector<std::uint32_t> ranks;
  const auto add = [](hid_t, const char* name, const H5L_info_t*, void* to) -> herr_t {
    const auto rank = parse_number<std::uint32_t>(name);
    if (!rank) return -1;
    static_cast<std::vector<std::uint32_t>*>(to)->push_back(*rank);
    return 0;
  };
  h5::must(H5Literate(group.get(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, add, &ranks), "read",
           file.path() + ":/ranks");
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

h5::File open_telemetry(const std::string& path) {
  const std::string name =
      fs::is_directory(path) ? (fs::path(path) / kTelemetryName).string() : path;
  if (!fs::exists(name))
    throw UsageError(path + ": expected a run's directory or its telemetry.h5; there is no " +
                     name);
  h5::File file = h5::File::open(name);
  std::int32_t version = 0;
  h5::read_attribute(file.id(), name, "schema_version", h5::native<std::int32_t>(), &version);
  if (version != kTelemetrySchemaVersion) {
    throw IoError("cannot read " + name + ": it is of schema version " + std::to_string(version) +
                  ", expected " + std::to_string(kTelemetrySchemaVersion));
  }
  return file;
}

/// Adds summaries of ranks that have not ended or were killed, as far as their records go.
void summarize(RecordedTelemetry& run) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, RankSummary> open;  // (attempt, rank)
  for (const RecordedProcess& process : run.processes)
    open[{process.attempt, process.rank}].rank = process.rank;
  for (const OfRank<RankSummary>& summary : run.summaries)
    open.erase({summary.attempt, summary.rank});
  for (const OfRank<RoleRecord>& role : run.roles) {
    const auto found = open.find({role.attempt, role.rank});
    if (found != open.end()) found->second.role = role.row.role;
  }
  for (const OfRank<StepRecord>& step : run.steps) {
    const auto found = open.find({step.attempt, step.rank});
    if (found == open.end() || step.row.role != static_cast<std::uint32_t>(Role::verifier))
      continue;
    found->second.response_tokens += step.row.decode_tokens - step.row.drafted + step.row.accepted;
  }
  for (const auto& [whose, summary] : open)
    run.summaries.push_back({summary, whose.first, whose.second});
}

RecordedTelemetry read_shards(const std::string& directory, std::vector<std::string>& warnings) {
  CollectedTelemetry all = collect_telemetry(directory, warnings);
  RecordedTelemetry run;
  for (const auto& [number, attempt] : all.attempts)
    run.attempts.push_back(recorded(number, attempt));
  run.processes = std::move(all.processes);
  for (const auto& [rank, shards] : all.ranks) {
    for (const TelemetryShard& shard : shards) {
      read_shard_steps(shard.name.path, [&](std::span<const StepRecord> steps) {
        for (const StepRecord& step : steps)
          run.steps.push_back({step, shard.name.attempt, shard.name.rank});
      });
    }
  }
  run.events = std::move(all.of<RequestEvent>());
  sort_events(run.events);
  run.transfers = std::move(all.of<TransferRecord>());
  run.roles = std::move(all.of<RoleRecord>());
  run.writes = std::move(all.of<WriteRecord>());
  run.drafters = std::move(all.drafter_names);
  run.acceptance = std::move(all.of<AcceptanceCell>());
  run.summaries = std::move(all.of<RankSummary>());
  summarize(run);
  return run;
}

/// Reads the attempts, the drafters and their acceptance.
RecordedTelemetry acceptance_of(const h5::File& file) {
  RecordedTelemetry run;
  run.attempts = read_with_texts(file, "attempts", "plan", &RecordedAttempt::plan);
  run.drafters = h5::read_strings(file, "drafter_names");
  run.acceptance = read_rows_of<AcceptanceCell>(file, run.attempts);
  for (const OfRank<AcceptanceCell>& cell : run.acceptance) {
    if (cell.row.drafter >= run.drafters.size() || cell.row.accepted > cell.row.drafted)
      damaged(file, "acceptance");
  }
  return run;
}

}  // namespace

RecordedTelemetry read_telemetry(const std::string& path, std::vector<std::string>* warnings) {
  const auto lock = h5::lock_hdf5();
  if (fs::is_directory(path) && !fs::exists(fs::path(path) / kTelemetryName) &&
      !list_shards(path, "telemetry").empty()) {
    // The run may end during the reading, and its shards be removed.
    const auto ended = [&] { return fs::exists(fs::path(path) / kTelemetryName); };
    try {
      std::vector<std::string> faults;
      RecordedTelemetry run = read_shards(path, faults);
      if (!ended()) {
        if (warnings != nullptr) warnings->insert(warnings->end(), faults.begin(), faults.end());
        return run;
      }
    } catch (const IoError&) {
      if (!ended()) throw;
    }
  }
  const h5::File file = open_telemetry(path);
  RecordedTelemetry run = acceptance_of(file);
  run.processes = read_with_texts(file, "processes", "host", &RecordedProcess::host);
  for (const std::uint32_t rank : ranks_of(file)) {
    auto steps =
        read_rows_of<StepRecord>(file, run.attempts, "ranks/" + std::to_string(rank) + "/steps");
    for (OfRank<StepRecord>& step : steps) step.rank = rank;
    run.steps.insert(run.steps.end(), steps.begin(), steps.end());
  }
  run.events = read_rows_of<RequestEvent>(file, run.attempts, "requests");
  run.transfers = read_rows_of<TransferRecord>(file, run.attempts);
  run.roles = read_rows_of<RoleRecord>(file, run.attempts);
  run.writes = read_rows_of<WriteRecord>(file, run.attempts);
  run.summaries = read_rows_of<RankSummary>(file, run.attempts);
  for (OfRank<RankSummary>& summary : run.summaries) summary.rank = summary.row.rank;
  return run;
}

RecordedTelemetry read_acceptance(const std::string& path) {
  const auto lock = h5::lock_hdf5();
  return acceptance_of(open_telemetry(path));
}

std::vector<StopPoint> read_stop_points(const std::string& path) {
  const auto lock = h5::lock_hdf5();
  const h5::File file = open_telemetry(path);
  std::vector<StopPoint> points;
  for (const OfRank<StopPoint>& point : read_rows<StopPoint>(file)) points.push_back(point.row);
  return points;
}

}  // namespace paceline::io
