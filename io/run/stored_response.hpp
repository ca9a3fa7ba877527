// Places of responses on disk.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "runtime/core/request.hpp"

namespace paceline::io {

/// Further values of scored responses, as one JSON object each; only responses that have any.
using RewardExtras = std::map<RequestId, std::string>;

/// A row of a shard's index (shard_format.hpp).
struct IndexRow {
  std::uint64_t offset = 0;  ///< of the response's first token
  std::uint64_t weight_version = 0;
  std::uint64_t checksum = 0;  ///< checksum_of()
  std::uint32_t prompt = 0;
  std::uint32_t sample = 0;
  std::uint32_t length = 0;  ///< number of tokens
  std::uint8_t finish_reason = 0;

  [[nodiscard]] RequestId id() const { return {prompt, sample}; }
  [[nodiscard]] bool finished() const {
    return finish_reason != static_cast<std::uint8_t>(FinishReason::partial);
  }
};

/// A response in a file: its index row, its file, and its reward. It has only 48 bytes, for memory
/// holds one for every response of a run.
struct StoredResponse : IndexRow {
  float reward = std::numeric_limits<float>::quiet_NaN();
  std::uint32_t source = 0;  ///< index of the file

  StoredResponse() = default;
  StoredResponse(const IndexRow& row, std::uint32_t file) : IndexRow(row), source(file) {}
};
static_assert(sizeof(StoredResponse) == 48);

}  // namespace paceline::io
