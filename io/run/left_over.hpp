// Responses that a run began and left unfinished, kept for a later run to go on with: DIR/left,
// which is like the directory of a stopped run, and has DIR/left/versions.json beside.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/run/manifest.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

/// Tokens of a response up to `end` that the weights of one version sampled.
struct VersionSpan {
  std::uint32_t end = 0;
  std::uint64_t version = 0;
  bool operator==(const VersionSpan&) const = default;
};

/// The beginnings of responses that earlier runs sampled: their spans, in order. Others were begun
/// by the run itself.
using EarlierSpans = std::map<RequestId, std::vector<VersionSpan>>;

/// Unfinished responses, ascending by id, and their spans.
struct BegunResponses {
  std::vector<Trajectory> responses;
  EarlierSpans spans;

  /// 32 hexadecimal digits over all of them; empty where there are none.
  [[nodiscard]] std::string fingerprint() const;
};

/// Writes DIR/left from the shards of the run in DIR, in place of an earlier one. `begun`:
/// responses that the run itself had taken over; those that it did not come to are left again.
/// Returns the number of responses; no folder is there where there are none. Every ShardWriter must
/// be closed or flushed. Throws IoError.
std::size_t write_left_over(const std::string& directory, const RunManifest& manifest,
                            std::span<const Prompt> prompts, const BegunResponses& begun);

/// Reads what the run in `directory` left of these prompts, which are known by uid and tokens; none
/// where it left none. `now`: the run that goes on with them. Throws UsageError where there is no
/// finished run, or it sampled by other settings than `now` (weights and their version aside), and
/// IoError.
[[nodiscard]] BegunResponses read_left_over(const std::string& directory, const RunManifest& now,
                                            std::span<const Prompt> prompts);

/// The spans of a whole response, of which `earlier` has a beginning.
[[nodiscard]] std::vector<VersionSpan> spans_of(RequestId id, std::uint32_t length,
                                                const EarlierSpans& earlier, std::uint64_t version);

}  // namespace paceline::io
