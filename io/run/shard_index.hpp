// Index of a run directory's trajectory shards, over all attempts and ranks. Private to this
// folder.
#pragma once

#include <string>
#include <vector>

#include "io/run/manifest.hpp"
#include "io/run/routing.hpp"
#include "io/run/window_reader.hpp"

namespace paceline::io {

struct ShardIndex {
  std::vector<std::string> paths;  ///< files that StoredResponse::source indexes
  /// One for each id, ascending, with its reward. The last written counts: a later attempt
  /// generates only unreadable responses again.
  std::vector<StoredResponse> finished;
  std::vector<StoredResponse> partial;  ///< ascending by id; of each unfinished id the longest
  RewardExtras extras;                  ///< extras of the finished responses' rewards
  std::vector<RoutingPlace> routing;    ///< [finished] in runs that keep experts; else empty
  std::vector<std::string> warnings;
};

/// Whether a row can belong to this run: its request and weights are the run's, it is not too long,
/// and its finish reason is known.
[[nodiscard]] bool possible(const IndexRow& row, const RunManifest& manifest);
/// Whether all of these are token ids of the run's model.
[[nodiscard]] bool possible(std::span<const TokenId> tokens, const RunManifest& manifest);

/// Reads the indexes and, a few MiB at a time, the responses, so that memory does not grow with
/// their tokens. Leaves out a damaged response: its checksum does not match, it is not possible(),
/// or its experts are not there. Shards that cannot be opened and damaged parts become warnings.
/// Throws IoError if the folder cannot be listed.
[[nodiscard]] ShardIndex read_shard_index(const std::string& directory,
                                          const RunManifest& manifest);

}  // namespace paceline::io
