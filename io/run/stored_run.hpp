// A run on disk, finished or in progress, whose responses can be read in any order and in part.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/run/manifest.hpp"
#include "io/run/stored_response.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

struct StoredRun {
  RunManifest manifest;
  std::vector<Prompt> prompts;
  bool complete = false;                 ///< it has its final file; `paths` names only this file
  std::vector<std::string> paths;        ///< files that StoredResponse::source indexes
  std::vector<StoredResponse> finished;  ///< ascending by id; if complete, every response
  std::vector<StoredResponse> partial;   ///< ascending by id; a resumed run continues them
  RewardExtras extras;                   ///< extras of the finished responses
  std::vector<std::string> warnings;
};

/// Opens a run directory or a final file; a run in progress is seen as far as it was flushed.
/// Memory: the prompts, and 48 bytes a response. Any one thread. Throws UsageError if there is no
/// run, and IoError if it cannot be read, or prompts or a final file are damaged. Damaged parts of
/// shards are left out.
[[nodiscard]] StoredRun open_stored_run(const std::string& path);

/// Like open_stored_run(), without the prompts, and without the extras of a complete run.
[[nodiscard]] StoredRun open_stored_responses(const std::string& path);
/// Reads only the manifest. Throws UsageError if there is no run, IoError if it cannot be read.
[[nodiscard]] RunManifest read_run_manifest(const std::string& path);

/// Opens a directory that must hold a complete run. Throws UsageError if it does not.
[[nodiscard]] StoredRun open_finished_run(const std::string& directory);

/// Path of the file `name` of a finished run. Throws UsageError if it does not exist.
[[nodiscard]] std::string file_of_run(const std::string& directory, const char* name);

/// Reads some of the run's responses, in the order given, with bounded memory. Throws IoError, also
/// if one is damaged.
void read_responses(const StoredRun& run, std::span<const StoredResponse> responses,
                    const std::function<void(Trajectory&&)>& use);

}  // namespace paceline::io
