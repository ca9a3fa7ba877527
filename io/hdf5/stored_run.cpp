#include "io/hdf5/stored_run.hpp"

#include <filesystem>
#include <utility>

#include "io/hdf5/file.hpp"
#include "io/hdf5/final_entries.hpp"
#include "io/hdf5/final_file.hpp"
#include "io/hdf5/shard_format.hpp"
#include "io/hdf5/shard_index.hpp"
#include "io/hdf5/window_reader.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace fs = std::filesystem;

StoredRun open_stored_run(const std::string& path) {
  const auto lock = h5::lock_hdf5();
  std::string file = path;
  if (fs::is_directory(path)) file = (fs::path(path) / kFinalName).string();
  StoredRun run;
  run.complete = fs::exists(file);
  if (!run.complete && !(fs::is_directory(path) && fs::exists(fs::path(path) / kManifestName))) {
    throw UsageError(path + ": not a run directory or a trajectory file");
  }
  const std::string source = run.complete ? file : path;
  run.manifest = read_manifest(source);
  run.prompts = read_prompts(source);
  if (prompts_fingerprint(run.prompts) != run.manifest.prompts_fingerprint) {
    throw IoError("cannot read the prompts of " + source + ": they are damaged");
  }
  if (run.complete) {
    run.finished = final_entries(file, run.manifest);
    run.paths.push_back(std::move(file));
  } else {
    ShardIndex index = read_shard_index(path, run.manifest);
    run.paths = std::move(index.paths);
    run.finished = std::move(index.finished);
    run.partial = std::move(index.partial);
    run.warnings = std::move(index.warnings);
  }
  return run;
}

Trajectory read_response(const StoredRun& run, const Entry& response) {
  const auto lock = h5::lock_hdf5();
  Trajectory read;
  read_in_order(run.paths, run.prefix(), {&response, 1}, 0, [&](const Window& window) {
    if (!window.intact(0)) throw_damaged(run.paths[response.source], response);
    read = window.trajectory(0);
  });
  return read;
}

void throw_damaged(const std::string& path, const Entry& response) {
  throw IoError("cannot read " + path + ": the response to prompt " +
                std::to_string(response.prompt) + ", sample " + std::to_string(response.sample) +
                " is damaged");
}

}  // namespace paceline::io
