// A rank's shard of pregenerated texts (speculation.pregenerate).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "io/run/shard_writer.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/upcoming_requests.hpp"

namespace paceline::app {

/// The shard. An error of writing is warned of once, and ends no run.
class PregeneratedShard final : public TrajectorySink {
 public:
  using Warn = std::function<void(const std::string&)>;
  /// `flush_seconds`: most seconds for which a text is only in memory.
  PregeneratedShard(const PregeneratedRun& run, int rank, const Clock& clock, double flush_seconds,
                    Warn warn);
  /// Writes what is left.
  ~PregeneratedShard() override;
  PregeneratedShard(const PregeneratedShard&) = delete;
  PregeneratedShard& operator=(const PregeneratedShard&) = delete;

  void append(const Trajectory& text) override;
  void flush() override;

 private:
  void attempt(const std::function<void()>& write);

  const Clock& clock_;
  double flush_seconds_;
  double flushed_;
  Warn warn_;
  std::unique_ptr<io::ShardWriter> writer_;  ///< null after a failure
};

}  // namespace paceline::app
