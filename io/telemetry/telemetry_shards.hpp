// Contents of a run's telemetry shards, over all attempts and ranks. Private to this folder.
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

/// A shard before its steps are read.
struct TelemetryShard {
  ShardName name;
  std::uint64_t steps = 0;
};

struct CollectedAttempt {
  std::uint32_t ranks = 0;
  double started = 0;  ///< Unix time; the earliest start of its ranks
  double length = 0;   ///< seconds up to the last moment of any record
  std::string plan;

  void reaches(double moment) {  // damaged times may be NaN
    if (std::isfinite(moment)) length = std::max(length, moment);
  }
};

[[nodiscard]] inline RecordedAttempt recorded(std::uint32_t number, const CollectedAttempt& of) {
  return {number, of.ranks, of.started, of.started + of.length, of.plan};
}

template <typename Record>
using Rows = std::vector<OfRank<Record>>;

/// All records except steps, which are too many.
struct CollectedTelemetry {
  std::map<std::uint32_t, std::vector<TelemetryShard>> ranks;  ///< shards in attempt order
  OfEachRecord<Rows> rows;                 ///< by (attempt, rank), in the order of shards
  std::vector<RecordedProcess> processes;  ///< by (attempt, rank)
  std::vector<std::string> drafter_names;
  std::map<std::uint32_t, CollectedAttempt> attempts;

  template <typename Record>
  Rows<Record>& of() {
    return std::get<Rows<Record>>(rows);
  }
};

/// Calls `use` with the steps of a shard, some at a time; returns their number. Throws IoError.
std::uint64_t read_shard_steps(const std::string& path,
                               const std::function<void(std::span<const StepRecord>)>& use);

/// Reads the shards of a run, in progress or finished. An unreadable shard becomes a warning, and
/// is left out as a whole. Throws IoError if the folder cannot be listed.
[[nodiscard]] CollectedTelemetry collect_telemetry(const std::string& directory,
                                                   std::vector<std::string>& warnings);

/// Sorts events by (attempt, time).
void sort_events(Rows<RequestEvent>& events);

}  // namespace paceline::io
