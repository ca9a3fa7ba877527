// A request on its way to a verifier, and as the verifier reports it: plain data that messages
// carry and batches take.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/request_sampling.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/types.hpp"

namespace paceline {

/// A request as a verifier receives it.
struct Admission {
  Trajectory trajectory;  ///< id, and what it already has when it goes on
  std::vector<TokenId> prompt;
  NoiseKey noise;
  /// Of its holder: n, where the n-th lease, move or race of the run gave it the request. Of two
  /// that may be the holder the one with the larger version is.
  std::uint64_t version = 0;
  /// Response tokens at which its lease ends.
  std::uint32_t until = std::numeric_limits<std::uint32_t>::max();
  RequestSampling sampling = {};
};

/// A request in a verifier's batch.
struct RunningRequest {
  RequestId id;
  std::uint32_t tokens = 0;  ///< response tokens so far
};

}  // namespace paceline
