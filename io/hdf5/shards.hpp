// Names of the files in an output directory, and the publication of a shard under its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/hdf5/file.hpp"

namespace paceline::io {

/// A shard of either kind, found by its name.
struct ShardName {
  std::string path;
  std::uint32_t attempt = 0;
  std::uint32_t rank = 0;
};
/// Files DIR/shards/<kind>-<attempt>-<rank>.h5 by (attempt, rank); empty where the folder does not
/// exist. Throws IoError when it cannot be listed.
[[nodiscard]] std::vector<ShardName> list_shards(const std::string& directory,
                                                 const std::string& kind);
[[nodiscard]] std::string shard_folder(const std::string& directory);
[[nodiscard]] std::string attempt_path(const std::string& directory, std::uint32_t attempt);
[[nodiscard]] std::string shard_path(const std::string& directory, const std::string& kind,
                                     std::uint32_t attempt, std::uint32_t rank);
/// Starts SWMR on a shard that was created, with its datasets, under temporary_name(path), and
/// renames it into place: readers never meet a half-made one. Throws IoError, also when a file of
/// that name exists.
void publish_shard(h5::File& file);

inline constexpr const char* kFinalName = "trajectories.h5";
inline constexpr const char* kTelemetryName = "telemetry.h5";
inline constexpr const char* kManifestName = "run.json";

}  // namespace paceline::io
