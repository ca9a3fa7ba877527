// Where a response lies on disk.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "runtime/core/request.hpp"

namespace paceline::io {

/// What was said of responses beside their rewards, as one JSON object each: of those alone of
/// which something was.
using RewardExtras = std::map<RequestId, std::string>;

struct IndexRow;

/// One response in a file: its index row, which file, and its reward. 48 bytes: there is one in
/// memory for every response of a run.
struct Entry {
  std::uint64_t offset = 0;
  std::uint64_t weight_version = 0;
  std::uint64_t checksum = 0;
  std::uint32_t prompt = 0;
  std::uint32_t sample = 0;
  std::uint32_t length = 0;
  float reward = std::numeric_limits<float>::quiet_NaN();
  std::uint32_t source = 0;  ///< index of the file
  std::uint8_t finish_reason = 0;

  Entry() = default;
  Entry(const IndexRow& row, std::uint32_t file);
  [[nodiscard]] IndexRow row() const;
  [[nodiscard]] RequestId id() const { return {prompt, sample}; }
};
static_assert(sizeof(Entry) == 48);

}  // namespace paceline::io
