// The digest of a run (`paceline digest`), by which runs are compared for exactness.
#pragma once

#include <cstdint>
#include <string>

namespace paceline::io {

struct DigestReport {
  std::string hex;                 ///< 32 hexadecimal digits
  std::uint64_t trajectories = 0;  ///< trajectories in the digest
  std::uint64_t expected = 0;      ///< trajectories of the complete run
};

/// The digest of a final file, of a run directory with one, or of the finished trajectories of a
/// live or killed run (then fewer than expected). Trajectories are taken in (prompt uid, sample)
/// order, so the order of the prompt file does not matter. Damaged parts of shards are left out.
/// Memory: 48 bytes a trajectory, the prompts and a window of 32 MiB. Any one thread. Throws
/// UsageError if there is no run, IoError if it is unreadable, or prompts or a final file are
/// damaged.
[[nodiscard]] DigestReport digest_report(const std::string& path);

}  // namespace paceline::io
