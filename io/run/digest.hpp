// `paceline digest`: what the exactness oracle compares.
#pragma once

#include <cstdint>
#include <string>

namespace paceline::io {

struct DigestReport {
  std::string hex;                 ///< 32 hexadecimal digits
  std::uint64_t trajectories = 0;  ///< that went in
  std::uint64_t expected = 0;      ///< of a complete run: prompts x samples
};

/// Digest of a final file, of a run directory with one, or of the finished trajectories of a run in
/// progress (live or killed; fewer than expected). Fed in (prompt uid, sample) order, so the order
/// of the prompt file does not matter. Memory: 48 bytes a trajectory, the prompts and a window of
/// 32 MiB. Any one thread. Throws IoError when it cannot be read or prompts or a final file are
/// damaged (of shards, what is damaged is left out), UsageError when there is no run.
[[nodiscard]] DigestReport digest_report(const std::string& path);

/// Its hexadecimal digits alone.
[[nodiscard]] inline std::string digest_of(const std::string& path) {
  return digest_report(path).hex;
}

}  // namespace paceline::io
