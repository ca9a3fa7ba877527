// Turns of modelled conversations: how many a response has, what it is given
// between them, and how long it waits for that.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/core/sampling.hpp"

namespace paceline::sim {

/// A lognormal variable; 0 < median <= p99.
struct Lognormal {
  double median = 1;
  double p99 = 1;
  /// The value that a share (in (0, 1)) of all do not exceed.
  [[nodiscard]] double quantile(double share) const;
};

/// What conversations are like. Assumed: few turns, each with a tool that
/// mostly answers at once and at times takes as long as a test suite.
struct TurnSettings {
  std::int32_t most = 1;     ///< turns; 1: responses are of one turn
  std::int32_t longest = 0;  ///< sampled tokens of a turn at most; 0: no limit
  Lognormal turns{4, 16};
  Lognormal seconds{1, 60};     ///< from the end of a turn to its answer
  Lognormal tokens{128, 2048};  ///< of an answer
  /// Seconds after which a worker is given up, and how often a turn is told to one: an answer that
  /// takes longer takes as long the next time, so that its conversation fails.
  double timeout = std::numeric_limits<double>::infinity();
  std::int32_t attempts = 1;
};

/// A turn of a response, and its answer.
struct ModelledTurn {
  std::int32_t end = 0;    ///< response tokens up to the turn's last, given ones included
  std::int32_t given = 0;  ///< tokens of the answer; 0: the conversation is over
  double seconds = 0;      ///< until the answer, or until none is awaited any more
  bool failed = false;     ///< there is no answer
};

/// Turns of a response of `sampled` tokens in all, `most` at most with what is
/// given: fewer are sampled where that does not fit. At least one turn.
[[nodiscard]] std::vector<ModelledTurn> make_turns(const TurnSettings& settings,
                                                   const NoiseKey& whose, std::int32_t sampled,
                                                   std::int32_t most);

}  // namespace paceline::sim
