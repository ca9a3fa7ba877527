// The output directory of a run: who may use it, which attempt this is, what is already done.
//
//   DIR/run.json                               the manifest, written before the run starts
//   DIR/shards/prompts.h5                      the prompts, for readers of a run in progress
//   DIR/shards/attempt-<attempt>.json          claims the attempt number
//   DIR/shards/trajectories-<attempt>-<rank>.h5
//   DIR/shards/telemetry-<attempt>-<rank>.h5
//   DIR/trajectories.h5, DIR/telemetry.h5      by rename, when the run is complete
//
// Whatever else lies in DIR is no part of the run, its log (DIR/paceline.log) included.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/run/entry.hpp"
#include "io/run/manifest.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

/// Finished responses that have no reward, and where they are: any rank can read them.
struct Unscored {
  std::vector<std::string> paths;
  bool final = false;          ///< the path is the final file's; else shards'
  std::vector<Entry> entries;  ///< ascending by id
};

/// Reads such responses with bounded memory, leaving out what is damaged. Throws IoError.
void read_unscored(const Unscored& unscored, const std::function<void(const Trajectory&)>& use);

struct Salvage;

/// What earlier attempts left. Finished trajectories stay on disk; only their ids are held.
struct ResumeState {
  std::vector<RequestId> finished;    ///< ascending, unique
  std::vector<Trajectory> partial;    ///< ascending by id; the longest of each id, none finished
  Unscored unscored;                  ///< of the finished ones, those without a reward
  std::vector<std::string> warnings;  ///< shards that could not be opened, damaged tails
};

/// One rank (rank 0) opens it, before any ShardWriter is made; the others need `path` and
/// `attempt()`. Holds an advisory lock while it lives, where the file system has such locks.
/// Nothing else is written before run.json is there and locked, so a run that comes second leaves
/// no trace. HDF5 calls are serialised by a process-wide lock: any one thread at a time may use an
/// object.
class RunDirectory {
 public:
  /// Opens `path`, creating it when it is not there. With `resume`, a directory that holds no run
  /// starts one, and of a complete run whose final file is damaged what is whole is kept as if the
  /// run had been stopped. Throws
  ///  - UsageError when it already holds a run and `resume` is false; when `resume` is true and
  ///    something that decides trajectories differs from the earlier attempts (old and new value
  ///    are named); when another live process has it open;
  ///  - IoError when it cannot be created or written, or DIR/shards is a symbolic link.
  RunDirectory(const std::string& path, const RunManifest& manifest,
               std::span<const Prompt> prompts, bool resume);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  /// What opening `path` would come to, in a line for the user; changes nothing. Throws as opening
  /// it would, as far as that can be known. `resumed`: the manifest to resume with, or null.
  [[nodiscard]] static std::string examine(const std::string& path, const RunManifest* resumed);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Number of attempts before this one; claimed on disk, so unique even among concurrent runs.
  [[nodiscard]] std::uint32_t attempt() const { return attempt_; }
  /// trajectories.h5 is there and whole: no attempt was claimed. What a killed run left undone
  /// after it, write_telemetry() and tidy() do.
  [[nodiscard]] bool complete() const { return complete_; }
  /// For the user when complete() or resumed, warnings in front of it; empty for a new run.
  [[nodiscard]] const std::string& note() const { return note_; }

  /// Reads what earlier attempts left, checking every trajectory against its checksum. Memory: 8
  /// bytes a finished trajectory, 48 one without a reward, and the partial ones. What is damaged
  /// becomes warnings, and will be generated again. Of a complete run, what its final file holds.
  /// Throws IoError when the shard folder cannot be listed or the final file is damaged.
  [[nodiscard]] ResumeState read_state() const;

  /// Once both final files are there: removes the shards and whatever temporary files were left.
  /// What cannot be removed does no harm and stays.
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
