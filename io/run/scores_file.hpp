// DIR/scores-NAME.h5, beside a run's trajectories.h5: log-probabilities of its responses under
// other weights, or the same.
//
//   /scores/offsets i64 [N+1]
//   /scores/{logprob,sampling_logprob} f32 [tokens]: as in /trajectories, but of these weights and
//       sampling parameters; sampling_logprob is -infinity where the token could not have been
//       sampled
//   /scores/top_ids, /scores/top_logprob, with sampling.logprobs: as top_columns.hpp says
//   /scores/routed_experts, /scores/routed_layers, /prompts/routed_experts, where asked for: as
//       routing.hpp says
//   /scores/checksum u64 [N]: /trajectories/checksum of the scored responses
//   attributes of /: the manifest of a run under these weights
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/run/manifest.hpp"
#include "io/run/stored_run.hpp"

namespace paceline::io {

/// DIR/scores-NAME.h5. Throws UsageError where NAME cannot name a file.
[[nodiscard]] std::string scores_path(const std::string& directory, const std::string& name);

/// Writes a scores file by way of a temporary one: it appears, in place of an earlier one, with
/// commit(), or not at all. Used by one thread of one process.
class ScoresWriter {
 public:
  /// `manifest`: the weights and settings that scores are computed with. Throws IoError.
  ScoresWriter(const std::string& path, const StoredRun& run, const RunManifest& manifest);
  ~ScoresWriter();
  ScoresWriter(const ScoresWriter&) = delete;
  ScoresWriter& operator=(const ScoresWriter&) = delete;

  /// Writes one response's scores, [its tokens] values each. `response`: index into
  /// StoredRun::finished, each once and in any order. Throws IoError.
  void write(std::size_t response, std::span<const float> logprob,
             std::span<const float> sampling_logprob);
  /// Writes the most probable tokens in the place of each of a response's, where the manifest has
  /// SamplingParams::logprobs of them.
  void write_top(std::size_t response, std::span<const TokenId> ids,
                 std::span<const float> logprob);
  /// Writes experts of a response's tokens and of its prompt's, [positions, layers, k] of positions
  /// from `first` on, where the manifest has a shape of them.
  void write_routing(std::size_t response, std::size_t first,
                     std::span<const std::int16_t> experts);
  /// Publishes the file once all responses are written. Throws IoError.
  void commit();

 private:
  struct State;
  void discard();

  std::unique_ptr<State> state_;  ///< null: committed
};

}  // namespace paceline::io
