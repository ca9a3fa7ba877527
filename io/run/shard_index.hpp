// What the trajectory shards of a run directory hold, all attempts and ranks together. Private to
// this folder.
#pragma once

#include <string>
#include <vector>

#include "io/run/manifest.hpp"
#include "io/run/window_reader.hpp"

namespace paceline::io {

struct ShardIndex {
  std::vector<std::string> paths;  ///< of Entry::source
  /// Ascending by id, one for each id. Of equal ones the last written stands: a later attempt
  /// generates again only what was not readable. With the rewards that came for them.
  std::vector<Entry> finished;
  std::vector<Entry> partial;  ///< the same, the longest of each id, none finished
  RewardExtras extras;         ///< of these rewards
  std::vector<std::string> warnings;
};

/// Whether a row can be one of this run: a request of it, not too long, of its weights, ended for a
/// known reason.
[[nodiscard]] bool possible(const IndexRow& row, const RunManifest& manifest);
/// Whether all of these are tokens of the run's model.
[[nodiscard]] bool possible(std::span<const TokenId> tokens, const RunManifest& manifest);

/// Reads the indexes and the responses (a few MiB at a time: memory does not grow with them), and
/// leaves out what is damaged: what does not match its checksum or is not possible(). Shards that
/// cannot be opened and damaged parts become warnings. Throws IoError when the folder cannot be
/// listed.
[[nodiscard]] ShardIndex read_shard_index(const std::string& directory,
                                          const RunManifest& manifest);

}  // namespace paceline::io
