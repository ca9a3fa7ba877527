// What the trajectory shards of a run directory hold, all attempts and ranks together. Private to
// this folder.
#pragma once

#include <string>
#include <vector>

#include "io/hdf5/window_reader.hpp"

namespace paceline::io {

struct ShardIndex {
  std::vector<std::string> paths;  ///< of Entry::source
  /// Ascending by id, one for each id. Of equal ones the last written stands: a later attempt
  /// generates again only what was not readable.
  std::vector<Entry> finished;
  std::vector<Entry> partial;  ///< the same, the longest of each id, none finished
  std::vector<std::string> warnings;
};

/// Reads the indexes. With `verify`, reads the responses too and leaves out those that do not match
/// their checksum (one at a time: memory does not grow with them). Shards that cannot be opened and
/// damaged parts become warnings. Throws IoError when the folder cannot be listed.
[[nodiscard]] ShardIndex read_shard_index(const std::string& directory, bool verify);

}  // namespace paceline::io
