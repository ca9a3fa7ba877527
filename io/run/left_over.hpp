// Responses that a run began and left unfinished, kept for a later run to go on with. DIR/left is
// like the directory of a stopped run, and also has DIR/left/versions.json.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/run/manifest.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

/// Tokens of a response up to `end`, all sampled by the weights of one version.
struct VersionSpan {
  std::uint32_t end = 0;
  std::uint64_t version = 0;
  bool operator==(const VersionSpan&) const = default;
};

/// Spans, in order, of the responses that earlier runs began and this run continues. Other
/// responses began in this run.
using EarlierSpans = std::map<RequestId, std::vector<VersionSpan>>;

/// Unfinished responses, ascending by id, with their spans.
struct BegunResponses {
  std::vector<Trajectory> responses;
  EarlierSpans spans;

  /// 32 hexadecimal digits of a hash of all responses; empty: there are none.
  [[nodiscard]] std::string fingerprint() const;
};

/// Writes DIR/left from the shards of the run in DIR, replacing an earlier one. `begun`: responses
/// that the run itself had taken over; those that it did not continue are left again. Returns the
/// number of responses; if it is 0, there is no folder. Every ShardWriter must be closed or
/// flushed. Throws IoError.
std::size_t write_left_over(const std::string& directory, const RunManifest& manifest,
                            std::span<const Prompt> prompts, const BegunResponses& begun);

/// Reads the unfinished responses to these prompts that the run in `directory` left; empty: there
/// are none. Prompts are known by uid, tokens, pictures and own sampling. `now`: the run that goes
/// on with the responses. Throws UsageError if there is no finished run, or its settings for
/// sampling differ from `now` (other than weights and their version), and IoError.
[[nodiscard]] BegunResponses read_left_over(const std::string& directory, const RunManifest& now,
                                            std::span<const Prompt> prompts);

/// The spans of a whole response of this run; `earlier` has the spans of its beginning, if any.
[[nodiscard]] std::vector<VersionSpan> spans_of(RequestId id, std::uint32_t length,
                                                const EarlierSpans& earlier, std::uint64_t version);

}  // namespace paceline::io
