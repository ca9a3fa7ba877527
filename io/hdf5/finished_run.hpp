// A finished run, of which responses can be read in any order and in part.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/hdf5/entry.hpp"
#include "io/hdf5/manifest.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

struct FinishedRun {
  std::string directory;
  std::string path;  ///< of its trajectories.h5
  RunManifest manifest;
  std::vector<Prompt> prompts;
  std::vector<Entry> responses;  ///< in (prompt, sample) order
};

/// From DIR/trajectories.h5. Memory: the prompts, and 48 bytes a response. Any one thread. Throws
/// UsageError when `directory` has no finished run, IoError when it cannot be read or is damaged.
[[nodiscard]] FinishedRun open_finished_run(const std::string& directory);

/// Reads these of the run's responses, in their order, with bounded memory. Throws IoError, also
/// where one is damaged.
void read_responses(const FinishedRun& run, std::span<const Entry> responses,
                    const std::function<void(Trajectory&&)>& use);

/// The file of that name, which a finished run has. Throws UsageError where this one has not.
[[nodiscard]] std::string file_of_run(const std::string& directory, const char* name);

}  // namespace paceline::io
