// Turns of modelled conversations: how many a response has, the answers that it is given between
// them, and how long it waits for these.
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
  /// The value that a share (in (0, 1)) of all draws do not exceed.
  [[nodiscard]] double quantile(double share) const;
};

/// Distribution of conversations. Assumed: few turns, each with a tool that mostly answers at once
/// and sometimes takes as long as a test suite.
struct TurnSettings {
  std::int32_t most = 1;     ///< most turns; 1: no conversations
  std::int32_t longest = 0;  ///< most sampled tokens of a turn; 0: no limit
  Lognormal turns{4, 16};
  Lognormal seconds{1, 60};     ///< from the end of a turn to its answer
  Lognormal tokens{128, 2048};  ///< tokens of an answer
  /// Seconds after which a worker is given up, and number of attempts for a turn. An answer that
  /// takes longer than `timeout` takes as long in every attempt, so its conversation fails.
  double timeout = std::numeric_limits<double>::infinity();
  std::int32_t attempts = 1;
};

/// A turn of a response, and its answer.
struct ModelledTurn {
  std::int32_t end = 0;    ///< response tokens up to the turn's last, given ones included
  std::int32_t given = 0;  ///< tokens of the answer; 0: the conversation is over
  double seconds = 0;      ///< until the answer, or until the last attempt ends
  bool failed = false;     ///< there is no answer
};

/// Turns of a response with `sampled` sampled tokens. If these and the given tokens would be more
/// than `most` together, fewer are sampled. Returns at least one turn.
[[nodiscard]] std::vector<ModelledTurn> make_turns(const TurnSettings& settings,
                                                   const NoiseKey& whose, std::int32_t sampled,
                                                   std::int32_t most);

}  // namespace paceline::sim
