// Interface of a rank's scorer of finished responses.
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
  refused = 1,    ///< the scorer declined the response
  garbage = 2,    ///< the scorer's answer was no score
  timed_out = 3,  ///< no answer came in time
  died = 4,       ///< the scorer ended
  not_tried = 5,  ///< no scorer was left to ask
};
[[nodiscard]] const char* name_of(ScoreOutcome outcome);

/// Outcome of scoring a response. Times are the clock's, of the last attempt.
struct Score {
  RequestId id;
  ScoreOutcome outcome = ScoreOutcome::scored;
  float value = std::numeric_limits<float>::quiet_NaN();  ///< NaN unless scored
  double start = 0;
  double duration = 0;
  std::string error;  ///< empty when scored
  std::string extra;  ///< further values of a scored response, a JSON object, or empty
};

/// Failures of scorers, whether another attempt made up for them or not.
struct Trouble {
  std::uint64_t failures = 0;
  std::string first;  ///< description of the first failure
};

/// Scores responses. Used by one thread, which never waits in it for a score.
class Scorer {
 public:
  virtual ~Scorer() = default;
  /// Submits a finished response; its needed parts are copied.
  virtual void submit(const Trajectory& response) = 0;
  /// Takes the scores, and failures, since the last call.
  [[nodiscard]] virtual std::vector<Score> take() = 0;
  /// Number of submitted responses that are not ready to be taken.
  [[nodiscard]] virtual std::size_t pending() const = 0;
  [[nodiscard]] virtual Trouble trouble() const { return {}; }
};

}  // namespace paceline::io
