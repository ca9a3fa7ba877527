// What ranks measured: one file a rank while the run goes on, merged into DIR/telemetry.h5 at its
// end. Times are seconds since the attempt began.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/interfaces.hpp"

namespace paceline::io {

/// Appends to DIR/shards/telemetry-<attempt>-<rank>.h5. step() and event() only fill a buffer,
/// except that about once a second (by the records' own times) and every 16,384 records it is
/// written. Used by one thread; errors and HDF5's lock as in ShardWriter.
class TelemetryWriter : public TelemetrySink {
 public:
  /// `plan`: the plan this attempt follows, for the record; one rank need give it.
  TelemetryWriter(const std::string& directory, std::uint32_t attempt, std::uint32_t rank,
                  const std::string& plan = {});
  ~TelemetryWriter() override;
  TelemetryWriter(const TelemetryWriter&) = delete;
  TelemetryWriter& operator=(const TelemetryWriter&) = delete;

  void step(const StepRecord& record) override;
  void event(const RequestEvent& event) override;
  void flush() override;
  /// Once, when the rank ends (or stops).
  void summary(const RankSummary& summary);
  /// Flushes and closes. Idempotent.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct TelemetryReport {
  std::string path;
  std::vector<std::string> warnings;  ///< shards that could not be read
};

/// Merges the telemetry of all attempts into DIR/telemetry.h5 (temporary file, fsync, rename) and
/// removes its shards unless `keep_shards`. A file that is already there stays.
///
///   /ranks/<rank>/steps/{attempt,start,duration,sample_duration,requests,prefill_tokens,
///                        decode_tokens,drafted,accepted,kv_blocks_used,role}
///   /requests/{attempt,rank,time,prompt_index,sample_index,kind,tokens}, by (attempt, time)
///   /summary/{attempt,rank,role,group,busy_seconds,...}, a row for each rank of each attempt
///   /attempts/{attempt,ranks,started,plan}; started is Unix time in seconds
///   /role_names: strings, by role number
///   attributes of /: schema_version; of /requests/kind: the names of its values
///
/// Call it after write_final_file, on one rank, with every writer closed. Memory: 40 bytes an
/// event.
TelemetryReport write_telemetry(const std::string& directory,
                                std::span<const std::string> role_names, bool keep_shards = false);

}  // namespace paceline::io
