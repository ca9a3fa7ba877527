#include "io/run/run_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/run/digest.hpp"
#include "io/run/final_entries.hpp"
#include "io/run/final_file.hpp"
#include "io/run/manifest_json.hpp"
#include "io/run/prompt_table.hpp"
#include "io/run/salvage.hpp"
#include "io/run/shard_format.hpp"
#include "io/run/shard_index.hpp"
#include "io/telemetry/telemetry_format.hpp"
#include "io/telemetry/telemetry_reader.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

constexpr const char* kProbeName = ".paceline-probe";

std::string in(const std::string& directory, const char* name) {
  return (fs::path(directory) / name).string();
}

/// Throws IoError if the path, or a part of it, is a dangling link: it neither exists nor can be
/// created.
void refuse_dangling_link(const std::string& path) {
  std::error_code ignored;
  fs::path part;
  for (const fs::path& name : fs::absolute(path)) {
    part /= name;
    if (!fs::is_symlink(part, ignored) || fs::exists(part, ignored)) continue;
    throw IoError("cannot create " + path + ": " + part.string() + " is a symbolic link to " +
                  fs::read_symlink(part, ignored).string() + ", which is not there");
  }
}

void create_folder(const std::string& path) {
  refuse_dangling_link(path);
  std::error_code error;
  fs::create_directories(path, error);
  if (!error && !fs::is_directory(path)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) throw IoError("cannot create the directory " + path + ": " + error.message());
}

void refuse_link(const std::string& folder) {
  std::error_code ignored;
  if (!fs::is_symlink(folder, ignored)) return;
  throw IoError(folder +
                " is a symbolic link, expected a folder: a run writes nothing outside its "
                "own directory");
}

/// Writes a probe, so that an unwritable directory or a full disk is found before hours of work.
void check_writable(const std::string& directory) {
  const std::string probe = in(directory, kProbeName);
  write_whole(probe, "paceline\n");
  std::error_code ignored;
  fs::remove(probe, ignored);
}

bool holds_run(const std::string& directory) {
  return fs::exists(in(directory, kManifestName)) || fs::exists(in(directory, kFinalName)) ||
         fs::exists(in(directory, kTelemetryName)) ||
         !list_shards(directory, "trajectories").empty();
}

/// Takes the advisory lock of a run, which the system releases when the process dies. Returns none
/// if the file system has no locks, or a complete run has lost its run.json.
Descriptor lock_run(const std::string& directory) {
  const std::string path = in(directory, kManifestName);
  Descriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  int error = errno;
  if (file.get() < 0 && error == ENOENT && fs::exists(in(directory, kFinalName))) return file;
  if (file.get() < 0) throw IoError("cannot open " + describe_errno(path, error));
  const bool locked = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
  error = errno;
  // A failed start removes its run.json: a lock on a removed file does not count.
  struct stat here {};
  struct stat there {};
  const bool gone = ::fstat(file.get(), &here) != 0 || ::lstat(path.c_str(), &there) != 0 ||
                    here.st_ino != there.st_ino;
  if (locked && !gone) return file;
  if (gone || error == EWOULDBLOCK) {
    throw UsageError(directory + " is in use by another run that has not ended");
  }
  return Descriptor();
}

/// Number of the next attempt: one past the highest that left a trace.
std::uint32_t next_attempt(const std::string& directory) {
  std::uint32_t next = 0;
  for (const char* kind : {"trajectories", "telemetry"}) {
    for (const ShardName& shard : list_shards(directory, kind)) {
      next = std::max(next, shard.attempt + 1);
    }
  }
  while (fs::exists(attempt_path(directory, next))) ++next;
  return next;
}

std::uint32_t claim_attempt(const std::string& directory, const RunManifest& manifest) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  for (std::uint32_t attempt = next_attempt(directory);; ++attempt) {
    Json json;
    json["attempt"] = attempt;
    json["started"] = std::chrono::duration<double>(now).count();  // Unix time, seconds
    json["program_version"] = manifest.program_version;
    json["config"] = manifest.config_text;
    const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    if (write_whole(attempt_path(directory, attempt), text, true)) return attempt;
  }
}

std::string already_there(const std::string& directory) {
  return directory + " already holds a run: --resume continues it, or choose another directory";
}

std::string resuming_note(const std::string& directory, std::uint32_t attempt) {
  return "resuming " + directory + ": start " + std::to_string(attempt + 1) + " of this run";
}

/// Reads the run's whole final file. Returns its damage; empty: none.
std::string damage_of(const std::string& directory) {
  try {
    (void)digest_report(in(directory, kFinalName));
    return "";
  } catch (const IoError& damage) {
    return damage.what();
  }
}

/// Reads the run's telemetry, if there is any. Returns its damage; empty: none. Telemetry of
/// another schema version counts as undamaged.
std::string telemetry_damage_of(const std::string& directory) {
  const std::string path = in(directory, kTelemetryName);
  if (!fs::exists(path)) return "";
  try {
    {
      const h5::File file = h5::File::open(path);
      std::int32_t version = 0;
      h5::read_attribute(file.id(), path, "schema_version", h5::native<std::int32_t>(), &version);
      if (version != kTelemetrySchemaVersion) return "";
    }
    (void)read_telemetry(path);
    return "";
  } catch (const IoError& damage) {
    return damage.what();
  }
}

std::string telemetry_note(const std::string& directory, const std::string& damage) {
  return "warning: " + damage + ": it is " + directory + "/" + kTelemetryName +
         ".damaged now; where the time of this run went is lost, its trajectories are not\n";
}

std::string salvage_note(const std::string& damage, const Salvage& salvage) {
  return "warning: " + damage + ": " + std::to_string(salvage.kept) + " of " +
         std::to_string(salvage.all) +
         " responses are whole and kept, the others are generated again" +
         (salvage.rewards ? "" : "; rewards are damaged and left out") + "\n";
}

std::string complete_note(const std::string& directory) {
  return directory + " holds a complete run: nothing to generate";
}

/// Temporary files that a killed process left in the run's own folder.
std::vector<fs::path> left_behind(const std::string& directory) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == kProbeName || is_temporary_of(name, kProbeName) ||
                      is_temporary_of(name, kManifestName) || is_temporary_of(name, kFinalName) ||
                      is_temporary_of(name, kTelemetryName);
    if (ours) found.push_back(entry.path());
  }
  return found;
}

/// Whether nothing is left to do, not even to tidy up.
bool is_done(const std::string& directory) {
  return fs::exists(in(directory, kFinalName)) && fs::exists(in(directory, kTelemetryName)) &&
         !fs::exists(fs::symlink_status(shard_folder(directory))) && left_behind(directory).empty();
}

/// Writes DIR/shards/prompts.h5, unless the existing file is undamaged and has these prompts.
void keep_prompts(const std::string& directory, const RunManifest& manifest,
                  std::span<const Prompt> prompts) {
  if (fs::exists(prompt_file(directory))) {
    try {
      const std::vector<Prompt> earlier = read_prompts(directory);
      if (prompts_fingerprint(earlier) == manifest.prompts_fingerprint) return;
    } catch (const IoError&) {  // damaged
    }
  }
  write_prompt_file(directory, prompts);
}

/// Throws UsageError unless the run in the directory began with these settings.
void require_same(const std::string& directory, const RunManifest& now) {
  if (const auto difference = first_difference(read_manifest(directory), now)) {
    throw UsageError("cannot resume " + directory + ": " + *difference +
                     " (responses of one run must come from one setting); choose another "
                     "directory, or set it back");
  }
}

/// Throws IoError if the folder cannot be created or, if it exists, written to, as far as can be
/// seen without writing.
void require_creatable(const std::string& path) {
  refuse_dangling_link(path);
  const auto fail = [&](int reason) {
    throw IoError("cannot create the directory " + path + ": " +
                  std::generic_category().message(reason));
  };
  fs::path there = fs::absolute(path);
  while (!fs::exists(there) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(there)) fail(ENOTDIR);
  if (::access(there.c_str(), W_OK | X_OK) != 0) fail(errno);
  struct statvfs space {};
  if (::statvfs(there.c_str(), &space) == 0 && space.f_blocks > 0 && space.f_bavail == 0)
    fail(ENOSPC);
}

}  // namespace

std::string RunDirectory::examine(const std::string& path, const RunManifest* resumed) {
  const auto lock = h5::lock_hdf5();
  if (!fs::is_directory(path) || !holds_run(path)) {
    require_creatable(path);
    return path + (fs::exists(path) ? ": is there, and holds no run" : ": will be made");
  }
  if (resumed == nullptr) throw UsageError(already_there(path));
  require_same(path, *resumed);
  if (fs::exists(in(path, kFinalName))) {
    const std::string damage = damage_of(path);
    if (damage.empty()) return complete_note(path);
    return damage + ": --resume keeps the responses that are whole, and generates the others again";
  }
  (void)lock_run(path);
  refuse_link(shard_folder(path));
  return resuming_note(path, next_attempt(path));
}

RunDirectory::RunDirectory(const std::string& path, const RunManifest& manifest,
                           std::span<const Prompt> prompts, bool resume)
    : path_(path), manifest_(manifest) {
  const auto lock = h5::lock_hdf5();
  const bool exists = fs::is_directory(path) && holds_run(path);
  if (exists && !resume) throw UsageError(already_there(path));
  if (exists) {
    require_same(path, manifest);
  } else {
    create_folder(path);
    refuse_dangling_link(in(path, kManifestName));
    if (!write_whole(in(path, kManifestName), to_json(manifest), true)) {
      throw UsageError(already_there(path));  // another process has created it meanwhile
    }
  }
  const bool final = fs::exists(in(path, kFinalName));
  const std::string damage = final ? damage_of(path) : "";
  const std::string lost = final ? telemetry_damage_of(path) : "";
  complete_ = final && damage.empty();
  if (complete_) note_ = complete_note(path);
  // A finished run needs no lock, and perhaps cannot be locked.
  if (complete_ && lost.empty() && is_done(path)) return;
  lock_ = lock_run(path);
  try {
    refuse_link(shard_folder(path));
    if (!lost.empty()) {
      fs::rename(in(path, kTelemetryName), in(path, kTelemetryName) + ".damaged");
      note_ = telemetry_note(path, lost) + note_;
    }
    if (complete_) return;
    create_folder(shard_folder(path));
    check_writable(path);
    keep_prompts(path, manifest, prompts);
    if (final) note_ += salvage_note(damage, salvage(prompts));
    attempt_ = claim_attempt(path, manifest);
  } catch (...) {
    if (!exists) ::unlink(in(path, kManifestName).c_str());  // the run never began
    throw;
  }
  if (exists) note_ += resuming_note(path, attempt_);
}

/// Copies the undamaged part of the final file to an attempt of its own. Moves the damaged file
/// aside, where it stays until there is another final file.
Salvage RunDirectory::salvage(std::span<const Prompt> prompts) {
  const RunManifest written = read_manifest(path_);
  if (!fs::exists(in(path_, kManifestName)))
    write_whole(in(path_, kManifestName), to_json(written), true);
  const std::uint32_t attempt = claim_attempt(path_, written);
  const Salvage found = salvage_final_file(path_, written, prompts, attempt);
  const std::string aside =
      (fs::path(path_) / ("." + std::string(kFinalName) + ".damaged.tmp")).string();
  fs::rename(in(path_, kFinalName), aside);
  return found;
}

ResumeState RunDirectory::read_state() const {
  const auto lock = h5::lock_hdf5();
  ShardIndex index;
  if (complete_) {
    index.paths.push_back(in(path_, kFinalName));
    index.finished = final_entries(index.paths.front(), read_manifest(index.paths.front()));
  } else {
    index = read_shard_index(path_, manifest_);
  }
  ResumeState state;
  state.warnings = std::move(index.warnings);
  state.finished.reserve(index.finished.size());
  for (const StoredResponse& entry : index.finished) {
    state.finished.push_back(entry.id());
    if (!std::isnan(entry.reward)) state.rewards.push_back({entry.id(), entry.reward});
  }
  state.partial.reserve(index.partial.size());
  read_in_order(index.paths, "", index.partial, std::size_t{32} << 20, [&](const Window& window) {
    for (std::size_t i = 0; i < window.entries.size(); ++i) {
      state.partial.push_back(window.trajectory(i));
    }
  });
  state.unscored = {std::move(index.paths), complete_, std::move(index.finished)};
  std::erase_if(state.unscored.entries,
                [](const StoredResponse& entry) { return !std::isnan(entry.reward); });
  return state;
}

void read_unscored(const Unscored& unscored, const std::function<void(const Trajectory&)>& use) {
  const auto lock = h5::lock_hdf5();
  read_in_order(unscored.paths, unscored.final ? "trajectories/" : "", unscored.entries,
                std::size_t{32} << 20, [&](const Window& window) {
                  for (std::size_t i = 0; i < window.entries.size(); ++i) {
                    if (window.intact(i)) use(window.trajectory(i));
                  }
                });
}

void RunDirectory::tidy() const {
  const auto lock = h5::lock_hdf5();
  std::error_code ignored;
  for (const fs::path& path : left_behind(path_)) fs::remove(path, ignored);
  const std::string folder = shard_folder(path_);
  if (fs::is_symlink(folder, ignored)) return;
  for (const char* kind : {"trajectories", "telemetry"}) {
    for (const ShardName& shard : list_shards(path_, kind)) fs::remove(shard.path, ignored);
  }
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name == fs::path(prompt_file(path_)).filename() ||
                      (name.starts_with(".") && name.ends_with(".tmp")) ||
                      (name.starts_with("attempt-") && name.ends_with(".json"));
    if (ours) fs::remove(entry.path(), ignored);
  }
  fs::remove(folder, ignored);  // stays when it holds other files
}

}  // namespace paceline::io
