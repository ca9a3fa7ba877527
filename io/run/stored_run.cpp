#include "io/run/stored_run.hpp"

#include <filesystem>
#include <utility>

#include "io/hdf5/file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/run/final_entries.hpp"
#include "io/run/final_file.hpp"
#include "io/run/prompt_table.hpp"
#include "io/run/shard_format.hpp"
#include "io/run/shard_index.hpp"
#include "io/run/window_reader.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace fs = std::filesystem;

namespace {

/// The file with a run's prompts and manifest: its final file or, if it has none, its directory.
/// Throws UsageError if there is no run.
std::string source_of(const std::string& path) {
  std::string file = path;
  if (fs::is_directory(path)) file = (fs::path(path) / kFinalName).string();
  if (fs::exists(file)) return file;
  if (fs::is_directory(path) && fs::exists(fs::path(path) / kManifestName)) return path;
  throw UsageError(path + ": not a run directory or a trajectory file");
}

}  // namespace

StoredRun open_stored_responses(const std::string& path) {
  const auto lock = h5::lock_hdf5();
  std::string source = source_of(path);
  StoredRun run;
  run.complete = !fs::is_directory(source);
  run.manifest = read_manifest(source);
  if (run.complete) {
    run.finished = final_entries(source, run.manifest);
    run.paths.push_back(std::move(source));
  } else {
    ShardIndex index = read_shard_index(path, run.manifest);
    run.paths = std::move(index.paths);
    run.finished = std::move(index.finished);
    run.partial = std::move(index.partial);
    run.extras = std::move(index.extras);
    run.warnings = std::move(index.warnings);
  }
  return run;
}

StoredRun open_stored_run(const std::string& path) {
  const auto lock = h5::lock_hdf5();
  const std::string source = source_of(path);
  const RunManifest manifest = read_manifest(source);
  std::vector<Prompt> prompts = read_prompts(source);
  if (prompts.size() != manifest.prompts ||
      prompts_fingerprint(prompts) != manifest.prompts_fingerprint) {
    throw IoError("cannot read the prompts of " + source + ": they are damaged");
  }
  StoredRun run = open_stored_responses(path);
  run.prompts = std::move(prompts);
  if (run.complete && run.manifest.choice) run.manifest.choice->kept = read_prompt_index(source);
  if (run.complete) run.extras = final_extras(source, run.finished);
  return run;
}

RunManifest read_run_manifest(const std::string& path) { return read_manifest(source_of(path)); }

std::string file_of_run(const std::string& directory, const char* name) {
  std::string path = (fs::path(directory) / name).string();
  if (!fs::exists(path)) throw UsageError(directory + ": not a finished run: it has no " + name);
  return path;
}

StoredRun open_finished_run(const std::string& directory) {
  return open_stored_run(file_of_run(directory, kFinalName));
}

void read_responses(const StoredRun& run, std::span<const StoredResponse> responses,
                    const std::function<void(Trajectory&&)>& use) {
  constexpr std::size_t kWindowBytes = std::size_t{32} << 20;
  const auto lock = h5::lock_hdf5();
  read_in_order(run.paths, run.complete ? "trajectories/" : "", responses, kWindowBytes,
                [&](const Window& window) {
                  for (std::size_t i = 0; i < window.entries.size(); ++i) {
                    const StoredResponse& entry = window.entries[i];
                    if (!window.intact(i)) {
                      throw IoError("cannot read " + run.paths[entry.source] +
                                    ": the response to prompt " + std::to_string(entry.prompt) +
                                    ", sample " + std::to_string(entry.sample) + " is damaged");
                    }
                    use(window.trajectory(i));
                  }
                });
}

}  // namespace paceline::io
