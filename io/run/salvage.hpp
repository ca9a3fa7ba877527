// Salvage of a complete run whose final file was damaged by a disk or an incomplete copy. Private
// to this folder.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "io/run/manifest.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

struct Salvage {
  std::uint64_t kept = 0;  ///< number of undamaged responses
  std::uint64_t all = 0;
  bool rewards = true;  ///< rewards are undamaged; else they are left out
};

/// Writes the undamaged responses of DIR/trajectories.h5 into the shard of rank 0 of `attempt`,
/// which is claimed and has no shard yet. Each response is checked against its checksum, wherever
/// the damage is. Columns are found by the file's metadata or, if this is damaged too, by the
/// layout of a file of the same run. `manifest`: the run's. The file itself is not changed. Memory:
/// 64 bytes a response. Salvages nothing from runs that keep masks, experts or log-probabilities
/// (SamplingParams), keep only some prompts (RunManifest::choice) or have an environment. Throws
/// IoError if the file cannot be read at all, or writing fails.
[[nodiscard]] Salvage salvage_final_file(const std::string& directory, const RunManifest& manifest,
                                         std::span<const Prompt> prompts, std::uint32_t attempt);

}  // namespace paceline::io
