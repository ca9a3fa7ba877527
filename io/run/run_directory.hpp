// The output directory of a run: ownership, attempts, and the state that earlier attempts left.
//
//   DIR/run.json                               the manifest, written before the run starts
//   DIR/shards/prompts.h5                      the prompts, for readers of a run in progress
//   DIR/shards/attempt-<attempt>.json          claims the attempt number
//   DIR/shards/trajectories-<attempt>-<rank>.h5
//   DIR/shards/telemetry-<attempt>-<rank>.h5
//   DIR/trajectories.h5, DIR/telemetry.h5      by rename, when the run is complete
//
// Other files in DIR are no part of the run, its log (DIR/paceline.log) included.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/run/manifest.hpp"
#include "io/run/stored_response.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

/// Finished responses without a reward, with their places: any rank can read them.
struct Unscored {
  std::vector<std::string> paths;
  bool final = false;                   ///< of the final file; else of shards
  std::vector<StoredResponse> entries;  ///< ascending by id
};

/// Reads these responses with bounded memory, leaving out damaged ones. Throws IoError.
void read_unscored(const Unscored& unscored, const std::function<void(const Trajectory&)>& use);

struct Salvage;

/// State that earlier attempts left. Finished trajectories stay on disk; only their ids are held.
struct ResumeState {
  std::vector<RequestId> finished;    ///< ascending, unique
  std::vector<Trajectory> partial;    ///< ascending by id; the longest of each id, none finished
  Unscored unscored;                  ///< finished ones without a reward
  std::vector<Reward> rewards;        ///< of the others, ascending by id
  std::vector<std::string> warnings;  ///< shards that could not be opened, damaged tails
};

/// The directory, opened by one rank (rank 0) before any ShardWriter is made; the others need
/// `path` and `attempt()`. Holds an advisory lock while it lives, where the file system has such
/// locks. Nothing else is written before run.json exists and is locked, so a second run leaves no
/// trace. A process-wide lock serialises HDF5 calls: any one thread at a time may use an object.
class RunDirectory {
 public:
  /// Opens `path`, creating it when it does not exist. With `resume`, a directory without a run
  /// starts one, and of a complete run with a damaged final file the undamaged part is kept as if
  /// the run had been stopped. Throws
  ///  - UsageError when it already holds a run and `resume` is false; when `resume` is true and a
  ///    setting that decides trajectories differs from the earlier attempts (old and new value are
  ///    named); when another live process has it open;
  ///  - IoError when it cannot be created or written, or DIR/shards is a symbolic link.
  RunDirectory(const std::string& path, const RunManifest& manifest,
               std::span<const Prompt> prompts, bool resume);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  /// Tells the outcome of opening `path` in a line for the user; changes nothing. Throws as opening
  /// would, as far as it can be known. `resumed`: the manifest to resume with, or null.
  [[nodiscard]] static std::string examine(const std::string& path, const RunManifest* resumed);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Number of attempts before this one; claimed on disk, so unique even among concurrent runs.
  [[nodiscard]] std::uint32_t attempt() const { return attempt_; }
  /// Whether trajectories.h5 exists and is whole, so that no attempt was claimed. write_telemetry()
  /// and tidy() do the rest that a killed run left undone.
  [[nodiscard]] bool complete() const { return complete_; }
  /// Note for the user when complete() or resumed, warnings first; empty for a new run.
  [[nodiscard]] const std::string& note() const { return note_; }

  /// Reads the state that earlier attempts left, checking every trajectory against its checksum.
  /// Memory: 8 bytes a finished trajectory, 48 one without a reward, and the partial ones. Damaged
  /// trajectories become warnings, and will be generated again. For a complete run, reads the final
  /// file. Throws IoError when the shard folder cannot be listed or the final file is damaged.
  [[nodiscard]] ResumeState read_state() const;

  /// Removes the shards and temporary files once both final files exist. A file that cannot be
  /// removed does no harm and stays.
  void tidy() const;

 private:
  Salvage salvage(std::span<const Prompt> prompts);

  std::string path_;
  RunManifest manifest_;
  std::uint32_t attempt_ = 0;
  bool complete_ = false;
  std::string note_;
  int lock_ = -1;  // descriptor of run.json, flock()ed
};

}  // namespace paceline::io
