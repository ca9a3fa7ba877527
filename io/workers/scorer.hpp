// Who scores the finished responses of a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/core/request.hpp"

namespace paceline::io {

/// How an attempt at a response ended. Stored in telemetry: values are fixed.
enum class ScoreOutcome : std::uint8_t {
  scored = 0,
  refused = 1,    ///< the scorer said that it cannot
  garbage = 2,    ///< it said something else than a score
  timed_out = 3,  ///< it said nothing in time
  died = 4,       ///< it ended
  not_tried = 5,  ///< there was nobody left to ask
};
[[nodiscard]] const char* name_of(ScoreOutcome outcome);

/// What became of a response. Times are the clock's, of the last attempt.
struct Score {
  RequestId id;
  ScoreOutcome outcome = ScoreOutcome::scored;
  float value = std::numeric_limits<float>::quiet_NaN();  ///< NaN unless scored
  double start = 0;
  double duration = 0;
  std::string error;  ///< empty when scored
  std::string extra;  ///< what else was said of one that is scored, a JSON object, or empty
};

/// Failures of those who score, whether another attempt made up for them or not.
struct Trouble {
  std::uint64_t failures = 0;
  std::string first;  ///< what the first one did
};

/// Used by one thread, which never waits in it for a score.
class Scorer {
 public:
  virtual ~Scorer() = default;
  /// A finished response, copied as far as it is needed.
  virtual void submit(const Trajectory& response) = 0;
  /// What has been scored, or given up, since the last call.
  [[nodiscard]] virtual std::vector<Score> take() = 0;
  /// Responses submitted and not yet ready to be taken.
  [[nodiscard]] virtual std::size_t pending() const = 0;
  [[nodiscard]] virtual Trouble trouble() const { return {}; }
};

}  // namespace paceline::io
