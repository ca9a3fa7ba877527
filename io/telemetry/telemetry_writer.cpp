#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "io/hdf5/shard_file.hpp"
#include "io/telemetry/telemetry.hpp"
#include "io/telemetry/telemetry_format.hpp"

namespace paceline::io {
namespace {

template <typename Record>
struct Stream {
  h5::Dataset* dataset = nullptr;
  std::vector<Record> buffer = {};
};

constexpr std::uint64_t kChunkRows = 1024;  // 112 KiB of steps
constexpr std::size_t kBufferedRows = 16384;
constexpr double kFlushSeconds = 1.0;

}  // namespace

struct TelemetryWriter::State {
  State(const std::string& directory, std::uint32_t attempt, std::uint32_t rank,
        const TelemetryOrigin& origin)
      : shard(directory, "telemetry", attempt, rank),
        drafters(origin.drafter_names.size()),
        clock(origin.clock) {
    std::apply([this](auto&... stream) { (add(stream), ...); }, streams);
    const h5::File& file = shard.file();
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    h5::write_attribute(file.id(), file.path(), "started",
                        origin.started.value_or(std::chrono::duration<double>(now).count()));
    h5::write_attribute(file.id(), file.path(), "host", origin.host);
    h5::write_attribute(file.id(), file.path(), "cores", origin.cores);
    h5::write_attribute(file.id(), file.path(), "gpus", origin.gpus);
    h5::write_attribute(file.id(), file.path(), "plan", origin.plan);
    h5::write_strings(file, "drafter_names", origin.drafter_names);
    shard.publish();
    if (clock == nullptr) return;
    shard.set_watch([this](double seconds) {
      keep(WriteRecord{clock->now() - seconds, seconds, WriteRecord::Kind::telemetry});
    });
  }

  ShardFile shard;
  std::size_t drafters;
  const Clock* clock;
  OfEachRecord<Stream> streams;
  double write_seconds = 0;
  double flushed_at = 0;  // seconds since the attempt began, by the records' clock

  template <typename Record>
  void add(Stream<Record>& stream) {
    stream.dataset = &shard.add(kTable<Record>, fields_of<Record>(), sizeof(Record), kChunkRows);
  }
  template <typename Record>
  static void write(Stream<Record>& stream) {
    if (stream.buffer.empty()) return;
    stream.dataset->template append<Record>(stream.buffer);
    stream.dataset->flush();
    stream.buffer.clear();
  }
  void write_buffers() {
    std::apply([](auto&... stream) { (write(stream), ...); }, streams);
  }
  [[nodiscard]] std::size_t buffered() const {
    return std::apply([](const auto&... stream) { return (stream.buffer.size() + ...); }, streams);
  }

  template <typename Record>
  void keep(const Record& record) {
    std::get<Stream<Record>>(streams).buffer.push_back(record);
    if constexpr (std::is_same_v<Record, WriteRecord>) write_seconds += record.duration;
  }
  /// Keeps a record of something that ended at its start plus its duration.
  template <typename Record>
  void take(const Record& record) {
    keep(record);
    write_when_due(record.start + record.duration);
  }
  template <typename Record>
  void write_now(std::span<const Record> records) {
    shard.guarded([&] {
      h5::Dataset& dataset = *std::get<Stream<Record>>(streams).dataset;
      dataset.append(records);
      dataset.flush();
    });
  }

  void write_when_due(double now) {
    const bool full = buffered() >= kBufferedRows;
    if (!full && now - flushed_at < kFlushSeconds) return;
    flushed_at = std::max(flushed_at, now);
    shard.guarded([this] { write_buffers(); });
  }
};

TelemetryWriter::TelemetryWriter(const std::string& directory, std::uint32_t attempt,
                                 std::uint32_t rank, const TelemetryOrigin& origin) {
  const auto lock = h5::lock_hdf5();
  state_ = std::make_unique<State>(directory, attempt, rank, origin);
}

TelemetryWriter::~TelemetryWriter() {
  const auto lock = h5::lock_hdf5();
  try {
    close();
  } catch (...) {  // callers who want errors call close()
  }
  state_.reset();
}

void TelemetryWriter::step(const StepRecord& record) { state_->take(record); }
void TelemetryWriter::event(const RequestEvent& event) {
  state_->keep(event);
  state_->write_when_due(event.time);
}
void TelemetryWriter::role(const RoleRecord& record) {
  state_->write_now<RoleRecord>({&record, 1});
}
void TelemetryWriter::transfer(const TransferRecord& record) { state_->take(record); }
void TelemetryWriter::pool(const KvPoolRecord& record) { state_->take(record); }
void TelemetryWriter::draft_memory(const DraftMemoryRecord& record) { state_->take(record); }
/// Stop points are written together with their steps.
void TelemetryWriter::stop_point(const StopPoint& point) { state_->keep(point); }
void TelemetryWriter::score(const ScoreRecord& record) { state_->take(record); }
void TelemetryWriter::write(const WriteRecord& record) { state_->take(record); }

double TelemetryWriter::write_seconds() const { return state_->write_seconds; }

void TelemetryWriter::acceptance(std::span<const AcceptanceCell> cells) {
  for (const AcceptanceCell& cell : cells) {
    if (cell.drafter >= state_->drafters) throw std::out_of_range("drafter without a name");
  }
  if (cells.empty()) return;
  state_->write_now(cells);
}

void TelemetryWriter::flush() {
  state_->shard.check();
  if (state_->buffered() == 0) return;  // nothing to write, and no write to record
  state_->shard.guarded([this] { state_->write_buffers(); });
}

void TelemetryWriter::summary(const RankSummary& summary) {
  state_->keep(summary);
  state_->shard.guarded([this] { state_->write_buffers(); });
}

void TelemetryWriter::close() {
  // The last record describes this write itself, up to the record.
  state_->shard.close([&s = *state_, begin = state_->clock ? state_->clock->now() : 0.0] {
    s.write_buffers();
    if (s.clock == nullptr) return;
    s.keep(WriteRecord{begin, s.clock->now() - begin, WriteRecord::Kind::telemetry});
    s.write_buffers();
  });
}

}  // namespace paceline::io
