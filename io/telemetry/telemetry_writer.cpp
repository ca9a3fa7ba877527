#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "io/hdf5/shard_file.hpp"
#include "io/telemetry/telemetry.hpp"
#include "io/telemetry/telemetry_format.hpp"

namespace paceline::io {
namespace {

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
      keep({clock->now() - seconds, seconds, WriteRecord::Kind::telemetry});
    });
  }

  ShardFile shard;
  std::size_t drafters;
  const Clock* clock;
  h5::Dataset& steps = shard.add("steps", step_fields(), sizeof(StepRecord), kChunkRows);
  h5::Dataset& events = shard.add("events", event_fields(), sizeof(RequestEvent), kChunkRows);
  h5::Dataset& transfers =
      shard.add("transfers", transfer_fields(), sizeof(TransferRecord), kChunkRows);
  h5::Dataset& pool = shard.add("kv_pool", pool_fields(), sizeof(KvPoolRecord), kChunkRows);
  h5::Dataset& draft_memory =
      shard.add("draft_memory", draft_memory_fields(), sizeof(DraftMemoryRecord), kChunkRows);
  h5::Dataset& stop_points =
      shard.add("stop_points", stop_point_fields(), sizeof(StopPoint), kChunkRows);
  h5::Dataset& scores = shard.add("scores", score_fields(), sizeof(ScoreRecord), kChunkRows);
  h5::Dataset& roles = shard.add("roles", role_fields(), sizeof(RoleRecord), kChunkRows);
  h5::Dataset& writes = shard.add("writes", write_fields(), sizeof(WriteRecord), kChunkRows);
  h5::Dataset& acceptance =
      shard.add("acceptance", acceptance_fields(), sizeof(AcceptanceCell), kChunkRows);
  h5::Dataset& summaries = shard.add("summary", summary_fields(), sizeof(RankSummary), kChunkRows);
  std::vector<StepRecord> step_buffer;
  std::vector<RequestEvent> event_buffer;
  std::vector<TransferRecord> transfer_buffer;
  std::vector<KvPoolRecord> pool_buffer;
  std::vector<DraftMemoryRecord> draft_memory_buffer;
  std::vector<StopPoint> stop_point_buffer;
  std::vector<ScoreRecord> score_buffer;
  std::vector<WriteRecord> write_buffer;
  double write_seconds = 0;
  double flushed_at = 0;  // seconds since the attempt began, by the records' clock

  void write_buffers() {
    write(steps, step_buffer);
    write(events, event_buffer);
    write(transfers, transfer_buffer);
    write(pool, pool_buffer);
    write(draft_memory, draft_memory_buffer);
    write(stop_points, stop_point_buffer);
    write(scores, score_buffer);
    write(writes, write_buffer);
  }
  template <typename Row>
  static void write(h5::Dataset& dataset, std::vector<Row>& buffer) {
    if (buffer.empty()) return;
    dataset.append<Row>(buffer);
    dataset.flush();
    buffer.clear();
  }

  void keep(const WriteRecord& record) {
    write_buffer.push_back(record);
    write_seconds += record.duration;
  }
  [[nodiscard]] std::size_t buffered() const {
    return step_buffer.size() + event_buffer.size() + transfer_buffer.size() + pool_buffer.size() +
           draft_memory_buffer.size() + stop_point_buffer.size() + score_buffer.size() +
           write_buffer.size();
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
  } catch (...) {  // close() is there for those who want to know
  }
  state_.reset();
}

void TelemetryWriter::step(const StepRecord& record) {
  state_->step_buffer.push_back(record);
  state_->write_when_due(record.start + record.duration);
}

void TelemetryWriter::event(const RequestEvent& event) {
  state_->event_buffer.push_back(event);
  state_->write_when_due(event.time);
}

void TelemetryWriter::role(const RoleRecord& record) {
  state_->shard.guarded([&] {
    state_->roles.append<RoleRecord>({&record, 1});
    state_->roles.flush();
  });
}

void TelemetryWriter::transfer(const TransferRecord& record) {
  state_->transfer_buffer.push_back(record);
  state_->write_when_due(record.start + record.duration);
}

void TelemetryWriter::pool(const KvPoolRecord& record) {
  state_->pool_buffer.push_back(record);
  state_->write_when_due(record.start + record.duration);
}

void TelemetryWriter::draft_memory(const DraftMemoryRecord& record) {
  state_->draft_memory_buffer.push_back(record);
  state_->write_when_due(record.start + record.duration);
}

/// Written with the steps that come with them.
void TelemetryWriter::stop_point(const StopPoint& point) {
  state_->stop_point_buffer.push_back(point);
}

void TelemetryWriter::score(const ScoreRecord& record) {
  state_->score_buffer.push_back(record);
  state_->write_when_due(record.start + record.duration);
}

void TelemetryWriter::write(const WriteRecord& record) {
  state_->keep(record);
  state_->write_when_due(record.start + record.duration);
}

double TelemetryWriter::write_seconds() const { return state_->write_seconds; }

void TelemetryWriter::acceptance(std::span<const AcceptanceCell> cells) {
  for (const AcceptanceCell& cell : cells) {
    if (cell.drafter >= state_->drafters) throw std::out_of_range("drafter without a name");
  }
  if (cells.empty()) return;
  state_->shard.guarded([&] {
    state_->acceptance.append(cells);
    state_->acceptance.flush();
  });
}

void TelemetryWriter::flush() {
  state_->shard.check();
  if (state_->buffered() == 0) return;  // nothing to write, and nothing to record of it
  state_->shard.guarded([this] { state_->write_buffers(); });
}

void TelemetryWriter::summary(const RankSummary& summary) {
  state_->shard.guarded([&] {
    state_->write_buffers();
    state_->summaries.append(1, &summary);
    state_->summaries.flush();
  });
}

void TelemetryWriter::close() {
  // The last record is of this itself, as far as it has come.
  state_->shard.close([&s = *state_, begin = state_->clock ? state_->clock->now() : 0.0] {
    s.write_buffers();
    if (s.clock == nullptr) return;
    s.keep({begin, s.clock->now() - begin, WriteRecord::Kind::telemetry});
    s.write(s.writes, s.write_buffer);
  });
}

}  // namespace paceline::io
