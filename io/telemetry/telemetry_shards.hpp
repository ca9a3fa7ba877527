// What the telemetry shards of a run hold, all attempts and ranks together. Private to this folder.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/hdf5/shards.hpp"
#include "io/telemetry/telemetry.hpp"
#include "runtime/core/recorded_telemetry.hpp"

namespace paceline::io {

/// What is known of a shard before its steps are read.
struct TelemetryShard {
  ShardName name;
  std::uint64_t steps = 0;
};

struct CollectedAttempt {
  std::uint32_t ranks = 0;
  double started = 0;  ///< Unix time, seconds; the earliest of its ranks
  double length = 0;   ///< seconds, up to the last moment that any of them recorded
  std::string plan;

  void reaches(double moment) {  // damaged ones may be NaN
    if (std::isfinite(moment)) length = std::max(length, moment);
  }
};

/// All but the steps, of which there are many.
struct CollectedTelemetry {
  std::map<std::uint32_t, std::vector<TelemetryShard>> ranks;  ///< shards in attempt order
  std::vector<OfRank<RequestEvent>> events;
  std::vector<OfRank<TransferRecord>> transfers;
  std::vector<OfRank<KvPoolRecord>> pool;
  std::vector<OfRank<ScoreRecord>> scores;
  std::vector<OfRank<DraftMemoryRecord>> draft_memory;  ///< by (attempt, rank), as the shards are
  std::vector<OfRank<StopPoint>> stop_points;           ///< likewise
  std::vector<OfRank<RoleRecord>> roles;                ///< likewise
  std::vector<OfRank<WriteRecord>> writes;              ///< likewise
  std::vector<RecordedProcess> processes;               ///< likewise
  std::vector<OfRank<AcceptanceCell>> acceptance;       ///< likewise
  std::vector<std::string> drafter_names;
  std::vector<OfRank<RankSummary>> summaries;
  std::map<std::uint32_t, CollectedAttempt> attempts;
};

/// Calls `use` with the steps of a shard, some at a time; how many there were. Throws IoError.
std::uint64_t read_shard_steps(const std::string& path,
                               const std::function<void(std::span<const StepRecord>)>& use);

/// Reads the shards of a run, still going or not. One that cannot be read becomes a warning, and is
/// left out whole. Throws IoError when the folder cannot be listed.
[[nodiscard]] CollectedTelemetry collect_telemetry(const std::string& directory,
                                                   std::vector<std::string>& warnings);

/// By (attempt, time): as events are kept.
void sort_events(std::vector<OfRank<RequestEvent>>& events);

}  // namespace paceline::io
