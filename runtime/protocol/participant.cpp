#include "runtime/protocol/participant.hpp"

#include <algorithm>

namespace paceline::protocol {

void drive(Participant& participant, Mailbox& mailbox, const Clock& clock,
           const std::function<bool()>& each_turn) {
  constexpr double kLongestSleep = 0.1;  // a signal is noticed when the sleep ends
  while (!participant.over()) {
    if (!each_turn()) break;
    const Turn turn = participant.turn();
    if (turn.worked || participant.over()) continue;
    mailbox.wait(std::clamp(turn.wake - clock.now(), 0.0, kLongestSleep));
  }
  mailbox.flush();
}

}  // namespace paceline::protocol
