// How the responses to one prompt are sampled, where it is not as those of the whole run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline {

/// What ends a response.
struct StopSet {
  std::vector<TokenId> ids;          ///< all, the model's own included; kept in the response
  std::vector<std::string> strings;  ///< UTF-8; the token that completes one is kept
  friend bool operator==(const StopSet&, const StopSet&) = default;
};

/// How responses to one prompt are sampled, as far as its line says; the rest is the run's.
struct RequestSampling {
  std::optional<std::int32_t> max_tokens;
  std::optional<StopSet> stops;
  friend bool operator==(const RequestSampling&, const RequestSampling&) = default;
};

}  // namespace paceline
