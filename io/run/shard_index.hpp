// Contents of a run directory's trajectory shards, over all attempts and ranks. Private to this
// folder.
#pragma once

#include <string>
#include <vector>

#include "io/run/manifest.hpp"
#include "io/run/routing.hpp"
#include "io/run/window_reader.hpp"

namespace paceline::io {

struct ShardIndex {
  std::vector<std::string> paths;  ///< of StoredResponse::source
  /// One for each id, ascending, with its reward. The last written stands: a later attempt only
  /// generates unreadable responses again.
  std::vector<StoredResponse> finished;
  std::vector<StoredResponse> partial;  ///< likewise, the longest of each id, none finished
  RewardExtras extras;                  ///< of the finished ones' rewards
  std::vector<RoutingPlace> routing;    ///< [finished], of runs that keep experts
  std::vector<std::string> warnings;
};

/// Whether a row can belong to this run: a request of it, not too long, of its weights, ended for a
/// known reason.
[[nodiscard]] bool possible(const IndexRow& row, const RunManifest& manifest);
/// Whether all of these are tokens of the run's model.
[[nodiscard]] bool possible(std::span<const TokenId> tokens, const RunManifest& manifest);

/// Reads the indexes and the responses (a few MiB at a time, so that memory does not grow with
/// them). Leaves out damaged responses: a checksum does not match, they are not possible(), or
/// their experts are not there.
/// Shards that cannot be opened and damaged parts become warnings. Throws IoError when the folder
/// cannot be listed.
[[nodiscard]] ShardIndex read_shard_index(const std::string& directory,
                                          const RunManifest& manifest);

}  // namespace paceline::io
