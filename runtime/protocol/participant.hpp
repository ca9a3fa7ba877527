// The interface of every role that a rank runs, and the loop that gives a role its turns.
#pragma once

#include <functional>
#include <limits>
#include <optional>

#include "runtime/core/clock.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/policy/place/placement.hpp"

namespace paceline::protocol {

/// The outcome of a turn.
struct Turn {
  bool worked = false;  ///< there may be more to do at once
  /// Clock time, in seconds, at which the participant wants a turn even if no message has come.
  double wake = std::numeric_limits<double>::infinity();
};

/// A role as a state machine. A turn applies the messages that have come, decides, works, and sends
/// messages. Time and peers are reached through the objects that the role was handed, so that the
/// same role runs in simulation. Used by one thread.
class Participant {
 public:
  virtual ~Participant() = default;
  virtual Turn turn() = 0;
  /// Whether no further turn is wanted.
  [[nodiscard]] virtual bool over() const = 0;
  /// Valid when over(): the placement that gives the rank its next role; none: the run ends.
  [[nodiscard]] virtual std::optional<policy::Placement> next() const { return std::nullopt; }
};

/// Gives turns until the participant is over, and sleeps in its mailbox while there is nothing to
/// do. `each_turn` is called before each turn, and at least ten times a second in idle times. It
/// checks for outside events such as signals, and ends the loop by returning false.
void drive(Participant& participant, Mailbox& mailbox, const Clock& clock,
           const std::function<bool()>& each_turn);

}  // namespace paceline::protocol
