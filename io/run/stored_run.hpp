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
  bool complete = false;           ///< it has its final file, which is then the only one of `paths`
  std::vector<std::string> paths;  ///< of StoredResponse::source
  std::vector<StoredResponse> finished;  ///< ascending by id; in a complete run every response
  std::vector<StoredResponse> partial;   ///< likewise, responses that a resumed run continues
  RewardExtras extras;                   ///< of the finished ones
  std::vector<std::string> warnings;
};

/// Opens a run directory or a final file; a run in progress as far as it has been flushed. Memory:
/// the prompts, and 48 bytes a response. Any one thread. Throws UsageError when there is no run,
/// IoError when it cannot be read, or prompts or a final file are damaged (damaged parts of shards
/// are left out).
[[nodiscard]] StoredRun open_stored_run(const std::string& path);

/// Likewise, without prompts, and without extras of a complete run.
[[nodiscard]] StoredRun open_stored_responses(const std::string& path);
/// The manifest alone. Throws UsageError where there is no run, IoError where it cannot be read.
[[nodiscard]] RunManifest read_run_manifest(const std::string& path);

/// Opens a directory that must hold a complete run. Throws UsageError where it does not.
[[nodiscard]] StoredRun open_finished_run(const std::string& directory);

/// Path of a finished run's file of that name. Throws UsageError where it does not exist.
[[nodiscard]] std::string file_of_run(const std::string& directory, const char* name);

/// Reads some of the run's responses, in their order, with bounded memory. Throws IoError, also
/// where one is damaged.
void read_responses(const StoredRun& run, std::span<const StoredResponse> responses,
                    const std::function<void(Trajectory&&)>& use);

}  // namespace paceline::io
