// Trajectory shard of one rank: a file that is readable while it grows and after the process was
// killed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/core/interfaces.hpp"

namespace paceline::io {

/// What the trajectories of a shard have beside tokens and log-probabilities.
struct ShardContents {
  bool masks = false;         ///< kept ids (SamplingParams::keep_masks)
  bool turns = false;         ///< they are conversations
  bool routing = false;       ///< experts, of finished ones (SamplingParams::keep_routing)
  std::int32_t logprobs = 0;  ///< SamplingParams::logprobs
};

/// Appends to DIR/shards/trajectories-<attempt>-<rank>.h5. Flushed data survives kill -9 and stays
/// readable after a failed write. Used by one thread; a process-wide lock serialises HDF5 itself,
/// so other threads may use other objects of this library.
///
/// Every member but the destructor throws IoError, naming file and cause, when writing fails (disk
/// full). After that the file stays as the last flush made it, and every further call throws.
class ShardWriter : public TrajectorySink {
 public:
  /// `directory`: opened by a RunDirectory (of rank 0). The file must not exist yet. `watch`: told
  /// the seconds of each write.
  ShardWriter(const std::string& directory, std::uint32_t attempt, std::uint32_t rank,
              std::function<void(double seconds)> watch = {}, const ShardContents& contents = {});
  /// Closes, dropping errors: call close() to see them.
  ~ShardWriter() override;
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// Buffers about 1 MiB, then writes (without making it visible). The three arrays must have one
  /// length (assert). A reward that the trajectory has already goes in as by reward().
  void append(const Trajectory& trajectory) override;
  /// Appends the reward of a finished response, in this shard or any other of the run; its value is
  /// a number. `extra`: further values to keep, as a JSON object; empty: none.
  void reward(const Reward& reward, std::string_view extra = {});
  /// Commits everything appended: first tokens and log-probabilities, then the index that names
  /// them. Cheap when nothing was appended. Throws IoError, also when the file has been deleted.
  void flush() override;
  /// Flushes, syncs to the device and closes. Idempotent.
  void close();

  [[nodiscard]] const std::string& path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::io
