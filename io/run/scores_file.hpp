// DIR/scores-NAME.h5, beside a run's trajectories.h5: log-probabilities of its responses under
// other weights, or the same.
//
//   /scores/offsets i64 [N+1]   /scores/{logprob,sampling_logprob} f32 [tokens]: as /trajectories
//   has them, but of these weights and sampling parameters; sampling_logprob is -infinity where
//   the token could not have been sampled
//   /scores/checksum u64 [N]: /trajectories/checksum, of the responses that were scored
//   attributes of /: the manifest of a run under these weights
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "io/run/manifest.hpp"
#include "io/run/stored_run.hpp"

namespace paceline::io {

/// DIR/scores-NAME.h5. Throws UsageError where the name is none for a file.
[[nodiscard]] std::string scores_path(const std::string& directory, const std::string& name);

/// Writes one by way of a temporary file: it appears, in place of an earlier one, with commit(), or
/// not at all. Used by one thread of one process.
class ScoresWriter {
 public:
  /// `manifest`: what the scores are computed with. Throws IoError.
  ScoresWriter(const std::string& path, const StoredRun& run, const RunManifest& manifest);
  ~ScoresWriter();
  ScoresWriter(const ScoresWriter&) = delete;
  ScoresWriter& operator=(const ScoresWriter&) = delete;

  /// `response`: index into StoredRun::finished, each once and in any order; [its tokens] of
  /// values. Throws IoError.
  void write(std::size_t response, std::span<const float> logprob,
             std::span<const float> sampling_logprob);
  /// Once all are written. Throws IoError.
  void commit();

 private:
  struct State;
  void discard();

  std::unique_ptr<State> state_;  ///< null: committed
};

}  // namespace paceline::io
