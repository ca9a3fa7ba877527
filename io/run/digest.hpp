// Digest of a run (`paceline digest`), by which runs are compared for exactness.
#pragma once

#include <cstdint>
#include <string>

namespace paceline::io {

struct DigestReport {
  std::string hex;                 ///< 32 hexadecimal digits
  std::uint64_t trajectories = 0;  ///< trajectories in the digest
  std::uint64_t expected = 0;      ///< of a complete run
};

/// Digest of a final file, of a run directory with one, or of the finished trajectories of a run in
/// progress (live or killed; fewer than expected). It is fed in (prompt uid, sample) order, so the
/// order of the prompt file does not matter. Memory: 48 bytes a trajectory, the prompts and a
/// window of 32 MiB. Any one thread. Throws IoError when the run cannot be read or prompts or a
/// final file are damaged (damaged parts of shards are left out), UsageError when there is no run.
[[nodiscard]] DigestReport digest_report(const std::string& path);

/// The digest's hexadecimal digits alone.
[[nodiscard]] inline std::string digest_of(const std::string& path) {
  return digest_report(path).hex;
}

}  // namespace paceline::io
