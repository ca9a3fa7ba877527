#include "runtime/roles/spare.hpp"

#include <stdexcept>
#include <utility>

#include "runtime/core/role.hpp"
#include "runtime/protocol/message_table.hpp"

namespace paceline::roles {

using namespace protocol;

Turn Spare::turn() {
  Turn turn;
  while (!over_) {
    const std::optional<Envelope> envelope = mailbox_.poll();
    if (!envelope) break;
    turn.worked = true;
    if (envelope->from != Address::coordinator()) continue;  // to an earlier role of this rank
    Message message = decode(envelope->bytes);
    const Receipt receipt =
        receive(envelope->from, message,
                on<Place>(the_coordinator,
                          [this](Address, Place& place) {
                            over_ = place.placement.role(rank_) != Role::spare;
                            if (over_) next_ = std::move(place.placement);
                          }),
                on<Finish>(the_coordinator, [this](Address, Finish&) { over_ = true; }));
    if (receipt == Receipt::unknown && !may_come_late(message))
      throw std::logic_error("a spare rank got a message that it does not take");
  }
  return turn;
}

}  // namespace paceline::roles
