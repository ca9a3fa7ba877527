// What is left of a complete run whose final file a disk, or a copy that was cut short, has
// damaged. Private to this folder.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "io/run/manifest.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

struct Salvage {
  std::uint64_t kept = 0;  ///< responses that are whole
  std::uint64_t all = 0;
  bool rewards = true;  ///< those of the kept ones are whole too; else they are left out
};

/// Writes the whole responses of DIR/trajectories.h5 into the shard of rank 0 of `attempt`, which
/// is claimed and has none. Each is checked against its checksum, wherever the damage is: columns
/// are found by the file's own description of itself, or, where that is damaged too, by where they
/// lie in a file of the same run. `manifest`: the run's. The file itself stays as it is. Memory: 64
/// bytes a response. Of runs that keep masks (SamplingParams::keep_masks) nothing is taken. Throws
/// IoError when the file cannot be read at all, or writing fails.
[[nodiscard]] Salvage salvage_final_file(const std::string& directory, const RunManifest& manifest,
                                         std::span<const Prompt> prompts, std::uint32_t attempt);

}  // namespace paceline::io
