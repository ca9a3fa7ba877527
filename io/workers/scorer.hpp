// Interface of a rank's scorer of finished responses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/core/request.hpp"

namespace paceline::io {

/// Outcome of an attempt at a response. Telemetry stores the values, so they are fixed.
enum class ScoreOutcome : std::uint8_t {
  scored = 0,
  refused = 1,    ///< the scorer declined the response
  garbage = 2,    ///< the scorer's answer was no score
  timed_out = 3,  ///< no answer came in time
  died = 4,       ///< the scorer's process ended
  not_tried = 5,  ///< no scorer was left to ask
};
[[nodiscard]] const char* name_of(ScoreOutcome outcome);

/// Outcome of scoring a response. Times are seconds of the clock, for the last attempt.
struct Score {
  RequestId id;
  ScoreOutcome outcome = ScoreOutcome::scored;
  float value = std::numeric_limits<float>::quiet_NaN();  ///< NaN unless scored
  double start = 0;
  double duration = 0;
  std::string error;  ///< empty when scored
  std::string extra;  ///< further values of a scored response, as a JSON object; empty: none
};

/// Failures of scorers, even if another attempt succeeded.
struct Trouble {
  std::uint64_t failures = 0;
  std::string first;  ///< description of the first failure
};

/// Scores responses. Used by one thread, which never waits for a score here.
class Scorer {
 public:
  virtual ~Scorer() = default;
  /// Submits a finished response; the parts of it that are needed are copied.
  virtual void submit(const Trajectory& response) = 0;
  /// Takes the scores, also of failed responses, that have come since the last call.
  [[nodiscard]] virtual std::vector<Score> take() = 0;
  /// Number of submitted responses without a score or failure yet.
  [[nodiscard]] virtual std::size_t pending() const = 0;
  [[nodiscard]] virtual Trouble trouble() const { return {}; }
};

}  // namespace paceline::io
