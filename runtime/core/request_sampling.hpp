// Sampling parameters of the responses to one prompt, where they differ from the run's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/sampling.hpp"
#include "runtime/core/types.hpp"

namespace paceline {

/// Ends of a response.
struct StopSet {
  std::vector<TokenId> ids;          ///< all ids, the model's own included; kept in the response
  std::vector<std::string> strings;  ///< UTF-8; the token that completes a string is kept
  friend bool operator==(const StopSet&, const StopSet&) = default;
};

/// Sampling parameters that a prompt's line sets; the rest is the run's.
struct RequestSampling {
  std::optional<std::int32_t> max_tokens;
  std::optional<StopSet> stops;
  std::optional<TokenDraw> draw = {};  ///< all fields, with the run's where the line says nothing
  std::optional<std::vector<LogitBias>> logit_bias = {};
  std::optional<std::uint64_t> seed = {};  ///< seed of the noise
  friend bool operator==(const RequestSampling&, const RequestSampling&) = default;
};

}  // namespace paceline
