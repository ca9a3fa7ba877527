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

struct IndexRow;

/// A response in a file: its index row, its file, and its reward. It has only 48 bytes, for memory
/// holds one for every response of a run.
struct StoredResponse {
  std::uint64_t offset = 0;
  std::uint64_t weight_version = 0;
  std::uint64_t checksum = 0;
  std::uint32_t prompt = 0;
  std::uint32_t sample = 0;
  std::uint32_t length = 0;
  float reward = std::numeric_limits<float>::quiet_NaN();
  std::uint32_t source = 0;  ///< index of the file
  std::uint8_t finish_reason = 0;

  StoredResponse() = default;
  StoredResponse(const IndexRow& row, std::uint32_t file);
  [[nodiscard]] IndexRow row() const;
  [[nodiscard]] RequestId id() const { return {prompt, sample}; }
};
static_assert(sizeof(StoredResponse) == 48);

}  // namespace paceline::io
