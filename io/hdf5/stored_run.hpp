// A run as it is on disk, finished or still going.
#pragma once

#include <string>
#include <vector>

#include "io/hdf5/entry.hpp"
#include "io/hdf5/manifest.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

struct StoredRun {
  RunManifest manifest;
  std::vector<Prompt> prompts;
  bool complete = false;           ///< it has its final file
  std::vector<std::string> paths;  ///< of Entry::source
  std::vector<Entry> finished;     ///< ascending by id; in a complete run every response
  std::vector<Entry> partial;      ///< likewise, what a stopped run will go on with
  std::vector<std::string> warnings;

  /// Of the columns in `paths`.
  [[nodiscard]] const char* prefix() const { return complete ? "trajectories/" : ""; }
};

/// From a run directory or a final file; of a run that is still going, what has been flushed.
/// Memory: the prompts, and 48 bytes a response. Any one thread. Throws UsageError when there is no
/// run, IoError when it cannot be read, or prompts or a final file are damaged (of shards, what is
/// damaged is left out).
[[nodiscard]] StoredRun open_stored_run(const std::string& path);

/// One of its responses. Throws IoError, also where it is damaged.
[[nodiscard]] Trajectory read_response(const StoredRun& run, const Entry& response);

/// IoError, for a response that is not what was written.
[[noreturn]] void throw_damaged(const std::string& path, const Entry& response);

}  // namespace paceline::io
