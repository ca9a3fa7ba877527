// Names of the files in an output directory, and the publication of a shard under its name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/hdf5/file.hpp"

namespace paceline::io {

/// A shard of either kind, as its name describes it.
struct ShardName {
  std::string path;
  std::uint32_t attempt = 0;
  std::uint32_t rank = 0;
};
/// Lists files DIR/shards/<kind>-<attempt>-<rank>.h5 by (attempt, rank); empty: there is no folder.
/// Throws IoError if the folder cannot be listed.
[[nodiscard]] std::vector<ShardName> list_shards(const std::string& directory,
                                                 const std::string& kind);
[[nodiscard]] std::string shard_folder(const std::string& directory);
[[nodiscard]] std::string attempt_path(const std::string& directory, std::uint32_t attempt);
[[nodiscard]] std::string shard_path(const std::string& directory, const std::string& kind,
                                     std::uint32_t attempt, std::uint32_t rank);
/// Starts SWMR on a shard that was created, with its datasets, under temporary_name(path), and
/// renames it into place, so that readers never see a half-made shard. Throws IoError, also if a
/// file of this name exists.
void publish_shard(h5::File& file);

inline constexpr const char* kFinalName = "trajectories.h5";
inline constexpr const char* kTelemetryName = "telemetry.h5";
inline constexpr const char* kManifestName = "run.json";

}  // namespace paceline::io
