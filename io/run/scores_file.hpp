// DIR/scores-NAME.h5, next to a run's trajectories.h5: log-probabilities of the run's responses
// under other weights, or the same.
//
//   /scores/offsets i64 [N+1]
//   /scores/{logprob,sampling_logprob} f32 [tokens]: as in /trajectories, but of these weights and
//       sampling parameters; sampling_logprob is -infinity if the token could not have been
//       sampled
//   /scores/top_ids, /scores/top_logprob, with sampling.logprobs: see top_columns.hpp
//   /scores/routed_experts, /scores/routed_layers, /prompts/routed_experts, if asked for: see
//       routing.hpp
//   /scores/checksum u64 [N]: /trajectories/checksum of the scored responses
//   attributes of /: the manifest of a run under these weights
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/run/manifest.hpp"
#include "io/run/stored_run.hpp"

namespace paceline::io {

/// The path DIR/scores-NAME.h5. Throws UsageError if NAME cannot name a file.
[[nodiscard]] std::string scores_path(const std::string& directory, const std::string& name);

/// Writes a scores file as a temporary one. commit() makes it appear, in place of an earlier one;
/// without commit() it never appears. Used by one thread of one process.
class ScoresWriter {
 public:
  /// `manifest`: of the weights and settings with which scores are computed. Throws IoError.
  ScoresWriter(const std::string& path, const StoredRun& run, const RunManifest& manifest);
  ~ScoresWriter();
  ScoresWriter(const ScoresWriter&) = delete;
  ScoresWriter& operator=(const ScoresWriter&) = delete;

  /// Writes one response's scores, one value for each of its tokens. `response`: index into
  /// StoredRun::finished; each once, in any order. Throws IoError.
  void write(std::size_t response, std::span<const float> logprob,
             std::span<const float> sampling_logprob);
  /// Writes the most probable tokens at the position of each token of a response. Call only if the
  /// manifest has SamplingParams::logprobs > 0.
  void write_top(std::size_t response, std::span<const TokenId> ids,
                 std::span<const float> logprob);
  /// Writes experts of a response's and its prompt's tokens, [positions, layers, k], for positions
  /// from `first` on. Call only if the manifest has a shape of experts.
  void write_routing(std::size_t response, std::size_t first,
                     std::span<const std::int16_t> experts);
  /// Publishes the file; all responses must have been written. Throws IoError.
  void commit();

 private:
  struct State;
  void discard();

  std::unique_ptr<State> state_;  ///< null: committed
};

}  // namespace paceline::io
