// Telemetry of a run: one file for each rank while the run goes on, merged into DIR/telemetry.h5 at
// its end. Times are seconds since the attempt began.
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
inline constexpr std::int32_t kTelemetrySchemaVersion = 13;

/// The last attempt to score a response. Times are seconds since the run's attempt began.
struct ScoreRecord {
  double start = 0;
  double duration = 0;
  RequestId id;
  float reward = 0;          ///< NaN: it has none
  std::uint8_t outcome = 0;  ///< ScoreOutcome of io/workers/scorer.hpp
};

/// Facts about a rank's process that its telemetry begins with.
struct TelemetryOrigin {
  std::string plan = {};  ///< text of this attempt's plan; only one rank has to give it
  /// Names of drafters, indexed by AcceptanceCell::drafter: "model:draft", "ngram", "suffix".
  /// Telemetry tells drafters apart by name alone.
  std::span<const std::string> drafter_names = {};
  std::string host = {};    ///< host of the rank
  std::uint32_t cores = 0;  ///< cores that it computes on: its part of shared ones; 0 with GPUs
  std::uint32_t gpus = 0;
  std::optional<double> started = {};  ///< start of the attempt, Unix time; nullopt: now
  /// Clock of the attempt, with which the writer records its own writes; null: it records none.
  /// Must outlive the writer.
  const Clock* clock = nullptr;
};

/// Appends to DIR/shards/telemetry-<attempt>-<rank>.h5. step(), event(), transfer(), pool(),
/// draft_memory(), stop_point(), score() and write() only fill a buffer. It is written about once a
/// second, by the records' own times, and every 16,384 records. Used by one thread; errors and
/// HDF5's lock are as in ShardWriter.
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
  /// Writes at once. Throws std::out_of_range on a drafter without a name.
  void acceptance(std::span<const AcceptanceCell> cells) override;
  /// Buffered like step().
  void score(const ScoreRecord& record);
  /// Buffered like step().
  void write(const WriteRecord& record);
  /// Seconds of all recorded writes, including its own.
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

/// The end of the attempt that completes a run, told on the rank that merges.
struct TelemetryEnding {
  std::uint32_t attempt = 0;
  std::uint32_t rank = 0;
  const Clock* clock = nullptr;      ///< clock of the attempt
  std::vector<WriteRecord> written;  ///< writes since this rank's shard was closed
};

struct TelemetryReport {
  std::string path;
  std::vector<std::string> warnings;  ///< about shards that could not be read
  double ended = 0;  ///< seconds of `ending`'s attempt, as in the file; 0: it has no shards
};

/// Merges the telemetry of all attempts into DIR/telemetry.h5 (temporary file, fsync, rename). An
/// existing file is complete, and stays. A shard that cannot be read is left out as a whole.
///
///   /ranks/<rank>/steps/{attempt,start,duration,draft_duration,forward_duration,
///                        sample_duration,sum_duration,exchange_duration,group_bytes,requests,
///                        prefill_tokens,decode_tokens,drafted,accepted,draft_calls,
///                        kv_blocks_used,kv_blocks,role,late,queued,waited}; kv_blocks: in the pool
///       (0 of ranks that do not lead a group)
///   /requests/{attempt,rank,time,prompt_index,sample_index,kind,tokens,method,reason}, by
///       (attempt, time); only kind "race_begun" has a method (a drafter's number, -1: none), only
///       kind "finished" a reason
///   /transfers/{attempt,rank,start,duration,key,bytes,peer,sends,complete}, by (attempt, start)
///   /kv_pool/{attempt,rank,start,duration,key,bytes,memory_bytes,disk_bytes,use,complete}, by
///       (attempt, start)
///   /draft_memory/{attempt,rank,start,duration,longest_pause,blocks,moved,kind}, by (attempt,
///       rank, start): draft models' memory that is lent to KV or taken back
///   /stop_points/{attempt,rank,prompt_index,sample_index,first,states,lengths,accepted}, by
///       (attempt, rank), in the order of recording: RADAR's dataset (record_stops);
///       shapes of a point: states [7, 10], lengths [8, 9], accepted [8]
///   /roles/{attempt,rank,start,preparing,loading,role,epoch,leader,tp}, by (attempt, rank, start):
///       a rank's first role, of epoch 0, begins with the attempt
///   /writes/{attempt,rank,start,duration,kind}, by (attempt, rank, start)
///   /scores/{attempt,rank,start,duration,prompt_index,sample_index,reward,outcome}, by (attempt,
///       start): attempts to score a response
///   /summary/{attempt,rank,role,leader,tp,busy_seconds,...}, a row for each rank of each attempt;
///       role, leader and tp are the last ones; leader -1: a rank in no verifier group
///   /attempts/{attempt,ranks,started,ended,plan}; started is the Unix time at which the attempt's
///       seconds begin, 0 if simulated; ended is the last moment that any rank recorded; for the
///       merging attempt, the moment at which all but the end of this file was written
///   /processes/{attempt,rank,cores,gpus,host}, by (attempt, rank)
///   /acceptance/{attempt,rank,drafter,position,batch,progress,drafted,accepted}: a row for each
///       AcceptanceCell, by (attempt, rank)
///   /role_names: strings, by role number
///   /drafter_names: strings, by drafter number; all ranks and attempts have one numbering, even if
///       attempts are configured with different drafters
///   strings NAME (such as plan and host): NAME u8, UTF-8 bytes; NAME_offsets i64 [n + 1]
///   attributes of /: schema_version, that of telemetry. Attributes of /requests/kind,
///       /requests/reason, /kv_pool/use, /draft_memory/kind, /writes/kind and /scores/outcome: the
///       names of their values. Attribute of all other datasets: unit, as "s", "bytes", a counted
///       thing ("tokens", "blocks"), or "1" for none (numbers, shares, rewards)
///
/// `outcome_names`: names of outcomes in /scores, by number. `ending`: nullopt if the last attempt
/// has ended otherwise (killed, or simulated). Called on one rank, with every writer closed.
/// Memory: 40 bytes an event, 56 a transfer, 64 a use of the KV pool, 32 a write, 596 a stop point.
TelemetryReport write_telemetry(const std::string& directory,
                                std::span<const std::string> role_names,
                                std::span<const std::string> outcome_names = {},
                                const std::optional<TelemetryEnding>& ending = {});

}  // namespace paceline::io
