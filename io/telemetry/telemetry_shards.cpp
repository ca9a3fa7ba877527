#include "io/telemetry/telemetry_shards.hpp"

#include <utility>

#include "io/hdf5/file.hpp"
#include "io/hdf5/shards.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::uint64_t kRowsAtOnce = 16384;  // steps in memory

template <typename Row>
std::vector<Row> read_rows(const h5::File& file) {
  const h5::Handle type = h5::compound(fields_of<Row>(), sizeof(Row));
  const h5::Dataset dataset = h5::Dataset::open(file, kTable<Row>, type.get(), 0);
  std::vector<Row> rows(dataset.size());
  dataset.read(0, rows.size(), rows.data());
  return rows;
}

/// The index of `name` in `names`; a new name is added.
std::uint32_t number_of(const std::string& name, std::vector<std::string>& names) {
  const auto found = std::find(names.begin(), names.end(), name);
  const auto number = static_cast<std::uint32_t>(found - names.begin());
  if (found == names.end()) names.push_back(name);
  return number;
}

std::uint64_t read_steps(const h5::File& file,
                         const std::function<void(std::span<const StepRecord>)>& use) {
  const h5::Handle type = h5::compound(fields_of<StepRecord>(), sizeof(StepRecord));
  const h5::Dataset steps = h5::Dataset::open(file, kTable<StepRecord>, type.get(), 0);
  std::vector<StepRecord> rows;
  for (std::uint64_t done = 0; done < steps.size(); done += rows.size()) {
    rows.resize(std::min(kRowsAtOnce, steps.size() - done));
    steps.read(done, rows.size(), rows.data());
    use(rows);
  }
  return steps.size();
}

/// The last moment of a record.
template <typename Record>
double end_of(const Record& record) {
  if constexpr (requires { record.preparing; }) {
    return record.start + record.preparing;
  } else if constexpr (requires { record.duration; }) {
    return record.start + record.duration;
  } else if constexpr (requires { record.time; }) {
    return record.time;
  } else {
    return 0;
  }
}

/// Adds a shard to `all`. If any part of it cannot be read, adds nothing.
void collect(const ShardName& name, CollectedTelemetry& all) {
  const h5::File file = h5::File::open(name.path);
  CollectedAttempt own;
  OfEachRecord<std::vector> read;
  const std::uint64_t steps = read_steps(file, [&own](std::span<const StepRecord> rows) {
    for (const StepRecord& step : rows) own.reaches(end_of(step));
  });
  const auto read_table = [&]<typename Row>(std::vector<Row>& rows) {
    if constexpr (!std::is_same_v<Row, StepRecord>) rows = read_rows<Row>(file);
    for (const Row& row : rows) own.reaches(end_of(row));
  };
  std::apply([&](auto&... rows) { (read_table(rows), ...); }, read);
  const auto drafter_names = h5::read_strings(file, "drafter_names");
  std::vector<AcceptanceCell>& acceptance = std::get<std::vector<AcceptanceCell>>(read);
  for (const AcceptanceCell& cell : acceptance) {
    if (cell.drafter >= drafter_names.size()) {
      throw IoError(file.path() + ":/acceptance: drafter " + std::to_string(cell.drafter) + " of " +
                    std::to_string(drafter_names.size()));
    }
  }
  h5::read_attribute(file.id(), file.path(), "started", h5::native<double>(), &own.started);
  RecordedProcess process;
  process.attempt = name.attempt;
  process.rank = name.rank;
  process.host = h5::read_string_attribute(file.id(), file.path(), "host");
  h5::read_attribute(file.id(), file.path(), "cores", h5::native<std::uint32_t>(), &process.cores);
  h5::read_attribute(file.id(), file.path(), "gpus", h5::native<std::uint32_t>(), &process.gpus);
  own.plan = h5::read_string_attribute(file.id(), file.path(), "plan");

  std::vector<std::uint32_t> drafter;
  for (const auto& known : drafter_names) drafter.push_back(number_of(known, all.drafter_names));
  for (AcceptanceCell& cell : acceptance) cell.drafter = drafter[cell.drafter];
  all.ranks[name.rank].push_back({name, steps});
  const auto add_table = [&]<typename Row>(const std::vector<Row>& rows) {
    for (const Row& row : rows) all.of<Row>().push_back({row, name.attempt, name.rank});
  };
  std::apply([&](const auto&... rows) { (add_table(rows), ...); }, read);
  all.processes.push_back(std::move(process));
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

void sort_events(Rows<RequestEvent>& events) {
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
    if (a.attempt != b.attempt) return a.attempt < b.attempt;
    return std::strong_order(a.row.time, b.row.time) < 0;  // damaged times may be NaN
  });
}

}  // namespace paceline::io
