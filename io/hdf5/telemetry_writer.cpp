#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/shard_format.hpp"
#include "io/hdf5/telemetry.hpp"
#include "io/hdf5/telemetry_format.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::uint64_t kChunkRows = 1024;  // 52 KiB of steps
constexpr std::size_t kBufferedRows = 16384;
constexpr double kFlushSeconds = 1.0;

h5::Dataset create_rows(const h5::File& file, const char* name,
                        const std::vector<h5::Field>& fields, std::size_t size) {
  const h5::Handle type = h5::compound(fields, size);
  return h5::Dataset::create(file, name, type.get(), h5::packed(type).get(), {0, true, kChunkRows});
}

}  // namespace

struct TelemetryWriter::State {
  h5::File file;
  h5::Dataset steps, events, acceptance, summaries;
  std::size_t drafters = 0;
  std::vector<StepRecord> step_buffer;
  std::vector<RequestEvent> event_buffer;
  double flushed_at = 0;  // seconds since the attempt began, by the records' clock
  bool open = true;
  std::string failure;  // as in ShardWriter

  void close_datasets() {
    for (h5::Dataset* dataset : {&steps, &events, &acceptance, &summaries}) dataset->close();
  }

  void write_buffers() {
    if (!step_buffer.empty()) {
      steps.append<StepRecord>(step_buffer);
      steps.flush();
      step_buffer.clear();
    }
    if (!event_buffer.empty()) {
      events.append<RequestEvent>(event_buffer);
      events.flush();
      event_buffer.clear();
    }
  }

  template <typename Step>
  void guarded(const Step& step) {
    if (!failure.empty()) throw IoError(failure);
    const auto lock = h5::lock_hdf5();
    try {
      step();
    } catch (const IoError& error) {
      failure = error.what();
      open = false;
      file.abandon();
      close_datasets();
      throw;
    }
  }

  void write_when_due(double now) {
    const bool full = step_buffer.size() + event_buffer.size() >= kBufferedRows;
    if (!full && now - flushed_at < kFlushSeconds) return;
    flushed_at = std::max(flushed_at, now);
    guarded([this] { write_buffers(); });
  }
};

TelemetryWriter::TelemetryWriter(const std::string& directory, std::uint32_t attempt,
                                 std::uint32_t rank, const std::string& plan,
                                 std::span<const std::string> drafter_names)
    : state_(std::make_unique<State>()) {
  const auto lock = h5::lock_hdf5();
  const std::string path = shard_path(directory, "telemetry", attempt, rank);
  State& s = *state_;
  s.file = h5::File::create(path, h5::File::Kind::shard);
  try {
    s.steps = create_rows(s.file, "steps", step_fields(), sizeof(StepRecord));
    s.events = create_rows(s.file, "events", event_fields(), sizeof(RequestEvent));
    s.acceptance = create_rows(s.file, "acceptance", acceptance_fields(), sizeof(AcceptanceCell));
    s.summaries = create_rows(s.file, "summary", summary_fields(), sizeof(RankSummary));
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    h5::write_attribute(s.file.id(), path, "attempt", attempt);
    h5::write_attribute(s.file.id(), path, "rank", rank);
    h5::write_attribute(s.file.id(), path, "started", std::chrono::duration<double>(now).count());
    h5::write_attribute(s.file.id(), path, "plan", plan);
    h5::write_strings(s.file, "drafter_names", drafter_names);
    s.drafters = drafter_names.size();
    publish_shard(s.file);
  } catch (...) {
    s.file.abandon();
    s.close_datasets();
    discard_temporary(path);
    throw;
  }
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

void TelemetryWriter::acceptance(std::span<const AcceptanceCell> cells) {
  for (const AcceptanceCell& cell : cells) {
    if (cell.drafter >= state_->drafters) throw std::out_of_range("drafter without a name");
  }
  if (cells.empty()) return;
  state_->guarded([&] {
    state_->acceptance.append(cells);
    state_->acceptance.flush();
  });
}

void TelemetryWriter::flush() {
  state_->guarded([this] { state_->write_buffers(); });
}

void TelemetryWriter::summary(const RankSummary& summary) {
  state_->guarded([&] {
    state_->write_buffers();
    state_->summaries.append(1, &summary);
    state_->summaries.flush();
  });
}

void TelemetryWriter::close() {
  State& s = *state_;
  if (!s.open) return;
  s.guarded([&] {
    s.write_buffers();
    s.open = false;
    s.close_datasets();
    s.file.close();
  });
}

}  // namespace paceline::io
