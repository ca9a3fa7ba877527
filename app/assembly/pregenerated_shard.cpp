#include "app/assembly/pregenerated_shard.hpp"

#include <cstdint>
#include <utility>

#include "runtime/core/error.hpp"

namespace paceline::app {

PregeneratedShard::PregeneratedShard(const PregeneratedRun& run, int rank, const Clock& clock,
                                     double flush_seconds, Warn warn)
    : clock_(clock), flush_seconds_(flush_seconds), flushed_(clock.now()), warn_(std::move(warn)) {
  attempt([&] {
    writer_ = std::make_unique<io::ShardWriter>(run.directory, run.attempt,
                                                static_cast<std::uint32_t>(rank));
  });
}

PregeneratedShard::~PregeneratedShard() {
  attempt([this] {
    if (writer_) writer_->close();
  });
}

void PregeneratedShard::append(const Trajectory& text) {
  attempt([&] {
    if (writer_) writer_->append(text);
  });
  if (clock_.now() - flushed_ >= flush_seconds_) flush();
}

void PregeneratedShard::flush() {
  flushed_ = clock_.now();
  attempt([this] {
    if (writer_) writer_->flush();
  });
}

void PregeneratedShard::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    writer_.reset();
    warn_(std::string("speculation.pregenerate: ") + error.what());
  }
}

}  // namespace paceline::app
