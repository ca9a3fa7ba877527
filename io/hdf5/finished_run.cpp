#include "io/hdf5/finished_run.hpp"

#include <filesystem>

#include "io/hdf5/file.hpp"
#include "io/hdf5/final_entries.hpp"
#include "io/hdf5/final_file.hpp"
#include "io/hdf5/shard_format.hpp"
#include "io/hdf5/stored_run.hpp"
#include "io/hdf5/window_reader.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace fs = std::filesystem;

std::string file_of_run(const std::string& directory, const char* name) {
  std::string path = (fs::path(directory) / name).string();
  if (!fs::exists(path)) throw UsageError(directory + ": not a finished run: it has no " + name);
  return path;
}

FinishedRun open_finished_run(const std::string& directory) {
  const auto lock = h5::lock_hdf5();
  FinishedRun run;
  run.directory = directory;
  run.path = file_of_run(directory, kFinalName);
  run.manifest = read_manifest(run.path);
  run.prompts = read_prompts(run.path);
  if (run.prompts.size() != run.manifest.prompts ||
      prompts_fingerprint(run.prompts) != run.manifest.prompts_fingerprint)
    throw IoError("cannot read the prompts of " + run.path + ": they are damaged");
  run.responses = final_entries(run.path, run.manifest);
  return run;
}

void read_responses(const FinishedRun& run, std::span<const Entry> responses,
                    const std::function<void(Trajectory&&)>& use) {
  constexpr std::size_t kWindowBytes = std::size_t{32} << 20;
  const auto lock = h5::lock_hdf5();
  read_in_order({&run.path, 1}, "trajectories/", responses, kWindowBytes,
                [&](const Window& window) {
                  for (std::size_t i = 0; i < window.entries.size(); ++i) {
                    if (!window.intact(i)) {
                      throw_damaged(run.path, window.entries[i]);
                    }
                    use(window.trajectory(i));
                  }
                });
}

}  // namespace paceline::io
