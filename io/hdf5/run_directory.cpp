#include "io/hdf5/run_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/file.hpp"
#include "io/hdf5/manifest_json.hpp"
#include "io/hdf5/prompt_table.hpp"
#include "io/hdf5/shard_format.hpp"
#include "io/hdf5/shard_index.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

std::string in(const std::string& directory, const char* name) {
  return (fs::path(directory) / name).string();
}

void create_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error && !fs::is_directory(path)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) throw IoError("cannot create the directory " + path + ": " + error.message());
}

/// Writes a byte, so that an unwritable directory or a full disk shows before hours of work.
void check_writable(const std::string& directory) {
  const std::string probe = in(directory, ".paceline-probe");
  write_whole(probe, "paceline\n");
  std::error_code ignored;
  fs::remove(probe, ignored);
}

bool holds_run(const std::string& directory) {
  return fs::exists(in(directory, kManifestName)) || fs::exists(in(directory, kFinalName)) ||
         fs::exists(in(directory, kTelemetryName)) ||
         !list_shards(directory, "trajectories").empty();
}

/// Takes the advisory lock of a run: a killed process lets go of it. -1 where the file system has
/// no locks.
int lock_run(const std::string& directory) {
  const std::string path = in(directory, kManifestName);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) throw IoError("cannot open " + describe_errno(path, errno));
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  const int error = errno;
  ::close(fd);
  if (error == EWOULDBLOCK) {
    throw UsageError(directory + " is in use by another run that has not ended");
  }
  return -1;
}

std::string attempt_path(const std::string& directory, std::uint32_t attempt) {
  return (fs::path(shard_folder(directory)) / ("attempt-" + std::to_string(attempt) + ".json"))
      .string();
}

/// One past the highest attempt that left a trace.
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

}  // namespace

RunDirectory::RunDirectory(const std::string& path, const RunManifest& manifest,
                           std::span<const Prompt> prompts, bool resume)
    : path_(path), manifest_(manifest) {
  const auto lock = h5::lock_hdf5();
  const bool exists = fs::is_directory(path) && holds_run(path);
  if (exists && !resume) throw UsageError(already_there(path));
  if (exists) {
    const RunManifest earlier = read_manifest(path);
    if (const auto difference = first_difference(earlier, manifest)) {
      throw UsageError("cannot resume " + path + ": " + *difference +
                       " (responses of one run must come from one setting); choose another "
                       "directory, or set it back");
    }
    if (fs::exists(in(path, kFinalName))) {
      (void)read_manifest(in(path, kFinalName));  // throws when it is damaged
      complete_ = true;
      note_ = path + " holds a complete run: nothing to do";
      return;
    }
  }
  create_folder(path);
  create_folder(shard_folder(path));
  check_writable(path);
  if (!fs::exists(in(path, kManifestName))) {
    write_prompt_file(path, prompts);
    if (!write_whole(in(path, kManifestName), to_json(manifest), true)) {
      throw UsageError(already_there(path));
    }
  } else if (!fs::exists(prompt_file(path))) {
    write_prompt_file(path, prompts);
  }
  lock_ = lock_run(path);
  try {
    attempt_ = claim_attempt(path, manifest);
  } catch (...) {
    if (lock_ >= 0) ::close(lock_);
    throw;
  }
  if (exists) note_ = "resuming " + path + ": attempt " + std::to_string(attempt_);
}

RunDirectory::~RunDirectory() {
  if (lock_ >= 0) ::close(lock_);
}

ResumeState RunDirectory::read_state() const {
  const auto lock = h5::lock_hdf5();
  ShardIndex index = read_shard_index(path_, true);
  ResumeState state;
  state.warnings = std::move(index.warnings);
  const auto foreign = [this](const Entry& entry) {
    return entry.prompt >= manifest_.prompts || entry.sample >= manifest_.samples;
  };
  if (std::any_of(index.finished.begin(), index.finished.end(), foreign) ||
      std::any_of(index.partial.begin(), index.partial.end(), foreign)) {
    throw IoError(shard_folder(path_) + " holds responses that belong to no request of this run");
  }
  state.finished.reserve(index.finished.size());
  for (const Entry& entry : index.finished) state.finished.push_back(entry.id());
  state.partial.reserve(index.partial.size());
  read_in_order(index.paths, "", index.partial, std::size_t{32} << 20, [&](const Window& window) {
    for (std::size_t i = 0; i < window.entries.size(); ++i) {
      state.partial.push_back(window.trajectory(i));
    }
  });
  return state;
}

}  // namespace paceline::io
