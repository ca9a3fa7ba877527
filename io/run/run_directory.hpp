// The output directory of a run: ownership, attempts, and the state that earlier attempts left.
//
//   DIR/run.json                               the manifest, written before the run starts
//   DIR/shards/prompts.h5                      the prompts, for readers of a run in progress
//   DIR/shards/attempt-<attempt>.json          claims the attempt number
//   DIR/shards/trajectories-<attempt>-<rank>.h5
//   DIR/shards/telemetry-<attempt>-<rank>.h5
//   DIR/trajectories.h5, DIR/telemetry.h5      by rename, when the run is complete
//
// Other files in DIR, such as its log (DIR/paceline.log), are no part of the run.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/run/manifest.hpp"
#include "io/run/stored_response.hpp"
#include "runtime/core/descriptor.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

/// Finished responses without a reward, and their places, so that any rank can read them.
struct Unscored {
  std::vector<std::string> paths;
  bool final = false;                   ///< places are in the final file; else in shards
  std::vector<StoredResponse> entries;  ///< ascending by id
};

/// Reads these responses with bounded memory, except damaged ones. Throws IoError.
void read_unscored(const Unscored& unscored, const std::function<void(const Trajectory&)>& use);

struct Salvage;

/// The state that earlier attempts left. Of finished trajectories, memory holds only the ids.
struct ResumeState {
  std::vector<RequestId> finished;    ///< ascending, unique
  std::vector<Trajectory> partial;    ///< ascending by id; of each unfinished id the longest
  Unscored unscored;                  ///< finished responses without a reward
  std::vector<Reward> rewards;        ///< rewards of finished responses, ascending by id
  std::vector<std::string> warnings;  ///< on shards that could not be opened, damaged tails
};

/// The directory, opened by one rank (rank 0) before any ShardWriter is made; other ranks need
/// `path` and `attempt()`. Holds an advisory lock while it lives, if the file system has such
/// locks. Before run.json exists and is locked nothing else is written, so a second run leaves no
/// trace. A process-wide lock serialises HDF5 calls: any one thread at a time may use an object.
class RunDirectory {
 public:
  /// Opens `path`, creating it if it does not exist. With `resume`, a directory without a run
  /// starts one. If a complete run's final file is damaged, the undamaged part is kept, as if the
  /// run had been stopped. Throws
  ///  - UsageError if it already holds a run and `resume` is false; if `resume` is true and a
  ///    setting that decides trajectories differs from the earlier attempts (old and new value are
  ///    named); if another live process has it open;
  ///  - IoError if it cannot be created or written, or DIR/shards is a symbolic link.
  RunDirectory(const std::string& path, const RunManifest& manifest,
               std::span<const Prompt> prompts, bool resume);
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  /// Returns a line for the user that tells what opening `path` would do; changes nothing. Throws
  /// as opening would, as far as that can be known. `resumed`: manifest to resume with, or null.
  [[nodiscard]] static std::string examine(const std::string& path, const RunManifest* resumed);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Number of attempts before this one, claimed on disk: unique even among concurrent runs.
  [[nodiscard]] std::uint32_t attempt() const { return attempt_; }
  /// Whether trajectories.h5 exists and is whole; then no attempt was claimed. write_telemetry()
  /// and tidy() do what a killed run may have left undone.
  [[nodiscard]] bool complete() const { return complete_; }
  /// Text for the user if complete() or resumed, with warnings first; empty for a new run.
  [[nodiscard]] const std::string& note() const { return note_; }

  /// Reads the state that earlier attempts left, checking every trajectory against its checksum.
  /// For a complete run, reads the final file. Damaged trajectories become warnings, and will be
  /// generated again. Memory: 8 bytes a finished trajectory, 48 more if it has no reward, and the
  /// partial trajectories. Throws IoError if the shard folder cannot be listed or the final file is
  /// damaged.
  [[nodiscard]] ResumeState read_state() const;

  /// Removes the shards and temporary files once both final files exist. A file that cannot be
  /// removed stays, and does no harm.
  void tidy() const;

 private:
  Salvage salvage(std::span<const Prompt> prompts);

  std::string path_;
  RunManifest manifest_;
  std::uint32_t attempt_ = 0;
  bool complete_ = false;
  std::string note_;
  Descriptor lock_;  // of run.json, flock()ed
};

}  // namespace paceline::io
