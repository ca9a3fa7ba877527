// A request on its way to a verifier, and a request as the verifier reports it: plain data of
// messages and batches.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/types.hpp"

namespace paceline {

/// A request as a verifier receives it.
struct Admission {
  Trajectory trajectory;  ///< id, and the tokens so far of a request that goes on
  std::vector<TokenId> prompt = {};
  NoiseKey noise;
  /// The holder's version: n if the run's n-th lease, move or race gave it the request. Of two
  /// possible holders, the one with the larger version holds the request.
  std::uint64_t version = 0;
  /// Response tokens at which the lease ends.
  std::uint32_t until = std::numeric_limits<std::uint32_t>::max();
  RequestSampling sampling = {};
  std::vector<PromptPicture> pictures = {};  ///< Prompt::pictures, wherever `prompt` is set
  std::vector<PictureBytes> files = {};      ///< [pictures] no file is empty
};

/// A request with the length of its response.
struct RequestLength {
  RequestId id;
  std::uint32_t tokens = 0;  ///< response tokens so far
};

}  // namespace paceline
