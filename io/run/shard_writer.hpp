// Trajectory shard of one rank: a file that can be read while it grows, and after its process was
// killed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/core/interfaces.hpp"

namespace paceline::io {

/// The contents of a shard's trajectories, in addition to tokens and log-probabilities.
struct ShardContents {
  bool masks = false;         ///< kept ids (SamplingParams::keep_masks)
  bool turns = false;         ///< turns of conversations
  bool routing = false;       ///< experts of finished trajectories (SamplingParams::keep_routing)
  std::int32_t logprobs = 0;  ///< top tokens (SamplingParams::logprobs); 0: none
};

/// Appends to DIR/shards/trajectories-<attempt>-<rank>.h5. Flushed data survives kill -9, and can
/// be read after a failed write. Used by one thread; a process-wide lock serialises HDF5 itself, so
/// other threads may use other objects of this library.
///
/// Every member but the destructor throws IoError, naming file and cause, when writing fails, for
/// example on a full disk. The file then stays as at the last flush, and every further call throws.
class ShardWriter : public TrajectorySink {
 public:
  /// `directory`: opened by a RunDirectory on rank 0. The file must not exist yet. `watch`: called
  /// with the seconds of each write.
  ShardWriter(const std::string& directory, std::uint32_t attempt, std::uint32_t rank,
              std::function<void(double seconds)> watch = {}, const ShardContents& contents = {});
  /// Closes, dropping errors: call close() to see them.
  ~ShardWriter() override;
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// Buffers about 1 MiB, then writes without making it visible. The three arrays must have one
  /// length (assert). A reward that the trajectory already has is appended as by reward().
  void append(const Trajectory& trajectory) override;
  /// Appends the reward of a finished response, whose shard may be any of the run. The value must
  /// be a number. `extra`: further values to keep, as a JSON object; empty: none.
  void reward(const Reward& reward, std::string_view extra = {});
  /// Commits everything appended: first tokens and log-probabilities, then the index that names
  /// them. Cheap if nothing was appended. Throws IoError, also if the file has been deleted.
  void flush() override;
  /// Flushes, syncs to the device and closes. Idempotent.
  void close();

  [[nodiscard]] const std::string& path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::io
