// Responses of earlier steps, to draft from. io implements the interface; app joins the two.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "runtime/core/types.hpp"

namespace paceline {

/// Responses of earlier steps to the prompts of this run. Used by one thread.
class EarlierResponses {
 public:
  virtual ~EarlierResponses() = default;
  /// Takes a response of `age` steps ago, >= 1. Of one age, samples are different. The tokens are
  /// valid during the call.
  using Use =
      std::function<void(std::uint32_t age, std::uint32_t sample, std::span<const TokenId> tokens)>;
  /// Gives the responses to a prompt, newest first, the first time that it is asked for them. May
  /// read files; what cannot be read is left out. Any number may be asked for.
  virtual void take(std::uint32_t prompt, const Use& use) = 0;
};

}  // namespace paceline
