// Rows of DIR/trajectories.h5 in the form of the shards' index. Private to this folder.
#pragma once

#include <string>
#include <vector>

#include "io/run/manifest.hpp"
#include "io/run/window_reader.hpp"

namespace paceline::io {

/// The rows of a final file as entries of source 0. Throws IoError unless they are all responses of
/// the run, in order.
[[nodiscard]] std::vector<StoredResponse> final_entries(const std::string& path,
                                                        const RunManifest& manifest);

/// Extras of the rewards of these rows; empty: the run has none. Throws IoError if they are
/// damaged.
[[nodiscard]] RewardExtras final_extras(const std::string& path,
                                        const std::vector<StoredResponse>& entries);

}  // namespace paceline::io
