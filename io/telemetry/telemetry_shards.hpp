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
#include "io/telemetry/telemetry_format.hpp"
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

template <typename Record>
using Rows = std::vector<OfRank<Record>>;

/// All but the steps, of which there are many.
struct CollectedTelemetry {
  std::map<std::uint32_t, std::vector<TelemetryShard>> ranks;  ///< shards in attempt order
  OfEachRecord<Rows> rows;                 ///< by (attempt, rank), as the shards are
  std::vector<RecordedProcess> processes;  ///< likewise
  std::vector<std::string> drafter_names;
  std::map<std::uint32_t, CollectedAttempt> attempts;

  template <typename Record>
  Rows<Record>& of() {
    return std::get<Rows<Record>>(rows);
  }
};

/// Calls `use` with the steps of a shard, some at a time; how many there were. Throws IoError.
std::uint64_t read_shard_steps(const std::string& path,
                               const std::function<void(std::span<const StepRecord>)>& use);

/// Reads the shards of a run, still going or not. One that cannot be read becomes a warning, and is
/// left out whole. Throws IoError when the folder cannot be listed.
[[nodiscard]] CollectedTelemetry collect_telemetry(const std::string& directory,
                                                   std::vector<std::string>& warnings);

/// By (attempt, time): as events are kept.
void sort_events(Rows<RequestEvent>& events);

}  // namespace paceline::io
