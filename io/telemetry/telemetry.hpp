// Telemetry of a run: one file a rank while the run goes on, merged into DIR/telemetry.h5 at its
// end. Times are seconds since the attempt began.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/interfaces.hpp"

namespace paceline::io {

/// Version of the layout of telemetry.h5 and its shards.
inline constexpr std::int32_t kTelemetrySchemaVersion = 12;

/// The last attempt to score a response. Times are seconds since the run began.
struct ScoreRecord {
  double start = 0;
  double duration = 0;
  RequestId id;
  float reward = 0;          ///< NaN: none
  std::uint8_t outcome = 0;  ///< ScoreOutcome of io/workers/scorer.hpp
};

/// Identity of a rank's telemetry.
struct TelemetryOrigin {
  std::string plan = {};  ///< of this attempt, for the record; one rank need give it
  /// Names by AcceptanceCell::drafter: "model:draft", "ngram", "suffix". The record tells drafters
  /// apart by name alone.
  std::span<const std::string> drafter_names = {};
  std::string host = {};    ///< the rank's
  std::uint32_t cores = 0;  ///< cores that it computes on, of shared ones its part; 0 with GPUs
  std::uint32_t gpus = 0;
  std::optional<double> started = {};  ///< start of the attempt, Unix time in seconds; absent: now
  /// Clock of the attempt, with which the writer records its own writes; null: it does not.
  /// Outlives it.
  const Clock* clock = nullptr;
};

/// Appends to DIR/shards/telemetry-<attempt>-<rank>.h5. step(), event(), transfer(), pool(),
/// draft_memory(), stop_point() and write() only fill a buffer, which is written about once a
/// second (by the records' own times) and every 16,384 records. Used by one thread; errors and
/// HDF5's lock as in ShardWriter.
class TelemetryWriter : public TelemetrySink {
 public:
  TelemetryWriter(const std::string& directory, std::uint32_t attempt, std::uint32_t rank,
                  const TelemetryOrigin& origin = {});
  ~TelemetryWriter() override;
  TelemetryWriter(const TelemetryWriter&) = delete;
  TelemetryWriter& operator=(const TelemetryWriter&) = delete;

  void step(const StepRecord& record) override;
  void event(const RequestEvent& event) override;
  void transfer(const TransferRecord& record) override;
  void pool(const KvPoolRecord& record) override;
  void draft_memory(const DraftMemoryRecord& record) override;
  void stop_point(const StopPoint& point) override;
  /// Writes at once. Throws std::out_of_range on a drafter that has no name.
  void acceptance(std::span<const AcceptanceCell> cells) override;
  /// Buffered like step().
  void score(const ScoreRecord& record);
  /// Buffered like step().
  void write(const WriteRecord& record);
  /// Seconds of all recorded writes, its own included.
  [[nodiscard]] double write_seconds() const;
  void flush() override;
  /// Writes at once.
  void role(const RoleRecord& record) override;
  void summary(const RankSummary& summary) override;
  /// Flushes and closes. Idempotent.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The attempt that completed a run, on the rank that merges.
struct TelemetryEnding {
  std::uint32_t attempt = 0;
  std::uint32_t rank = 0;
  const Clock* clock = nullptr;      ///< of the attempt
  std::vector<WriteRecord> written;  ///< since that rank's shard was closed
};

struct TelemetryReport {
  std::string path;
  std::vector<std::string> warnings;  ///< shards that could not be read
  double ended = 0;  ///< seconds of the attempt of `ending`, as in the file; 0: it has none
};

/// Merges the telemetry of all attempts into DIR/telemetry.h5 (temporary file, fsync, rename). An
/// existing file is whole, and stays. A shard that cannot be read is left out whole.
///
///   /ranks/<rank>/steps/{attempt,start,duration,draft_duration,forward_duration,
///                        sample_duration,sum_duration,exchange_duration,group_bytes,requests,
///                        prefill_tokens,decode_tokens,drafted,accepted,draft_calls,
///                        kv_blocks_used,kv_blocks,role,late,queued,waited}; kv_blocks: in the pool
///       (0 of ranks that do not lead a group)
///   /requests/{attempt,rank,time,prompt_index,sample_index,kind,tokens,method,reason}, by
///       (attempt, time); method (a drafter's number, -1: none) is of kind "race_begun" alone,
///       reason of "finished"
///   /transfers/{attempt,rank,start,duration,key,bytes,peer,sends,complete}, by (attempt, start)
///   /kv_pool/{attempt,rank,start,duration,key,bytes,memory_bytes,disk_bytes,use,complete}, by
///       (attempt, start)
///   /draft_memory/{attempt,rank,start,duration,longest_pause,blocks,moved,kind}, by (attempt,
///       rank, start): draft models' memory lent to KV and taken back
///   /stop_points/{attempt,rank,prompt_index,sample_index,first,states,lengths,accepted}, by
///       (attempt, rank), in the order of recording: RADAR's dataset (record_stops);
///       shapes of a point: states [7, 10], lengths [8, 9], accepted [8]
///   /roles/{attempt,rank,start,preparing,loading,role,epoch,leader,tp}, by (attempt, rank, start):
///       the first of an attempt, of epoch 0, begins with it
///   /writes/{attempt,rank,start,duration,kind}, by (attempt, rank, start)
///   /scores/{attempt,rank,start,duration,prompt_index,sample_index,reward,outcome}, by (attempt,
///       start): attempts to score a response
///   /summary/{attempt,rank,role,leader,tp,busy_seconds,...}, a row for each rank of each attempt;
///       role, leader and tp are its last ones, leader is -1 for a rank in no verifier group
///   /attempts/{attempt,ranks,started,ended,plan}; started is the Unix time at which the attempt's
///       seconds begin, 0 of a simulated one; ended is the last moment that any rank recorded, for
///       the merging attempt the time when all but the end of this file was written
///   /processes/{attempt,rank,cores,gpus,host}, by (attempt, rank)
///   /acceptance/{attempt,rank,drafter,position,batch,progress,drafted,accepted}: a row for each
///       AcceptanceCell, by (attempt, rank)
///   /role_names: strings, by role number
///   /drafter_names: strings, by drafter number; one numbering for all ranks and attempts, though
///       attempts may be configured with different drafters
///   strings NAME (plan and host, too): NAME u8, UTF-8 bytes; NAME_offsets i64 [n + 1]
///   attributes of /: schema_version (of telemetry); of /requests/kind,
///   /requests/reason, /kv_pool/use, /draft_memory/kind, /writes/kind and /scores/outcome: the
///   names of their values; of all other datasets: unit, "s", "bytes" or the counted thing
///   ("tokens", "blocks"), "1" where there is none (numbers, shares, rewards)
///
/// `outcome_names`: of /scores, by number. `ending`: absent for telemetry of an attempt that has
/// ended (killed, or simulated). Called on one rank, with every writer closed. Memory: 40 bytes an
/// event, 56 a transfer, 64 a use of the KV pool, 32 a write, 596 a stop point.
TelemetryReport write_telemetry(const std::string& directory,
                                std::span<const std::string> role_names,
                                std::span<const std::string> outcome_names = {},
                                const std::optional<TelemetryEnding>& ending = {});

}  // namespace paceline::io
