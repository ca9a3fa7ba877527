// The mailboxes of a simulated job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <stdexcept>
#include <vector>

#include "runtime/core/mailbox.hpp"
#include "runtime/sim/network.hpp"
#include "runtime/sim/world.hpp"

namespace paceline::sim {

/// Faults of messages on their way. A transport hides all of them: a sender's messages still arrive
/// in order, each once.
struct MessageFaults {
  std::uint64_t seed = 0;
  double delayed = 0;     ///< share of messages that take longer
  double delay = 0;       ///< longest delay in seconds
  double duplicated = 0;  ///< share of messages sent twice; the second is dropped
};

/// Carries messages between mailboxes, and wakes their receivers. Not thread-safe.
class Post {
 public:
  Post(World& world, Network& network, const MessageFaults& faults = {});
  ~Post();
  Post(const Post&) = delete;
  Post& operator=(const Post&) = delete;

  /// The mailbox at an address. Valid as long as this object.
  Mailbox& open(Address at);
  /// Sets the actor that owns an address. Call it before the first turn.
  void belongs(Address at, ActorId actor);

 private:
  class Box;
  void send(Box& sender, Address to, std::span<const std::byte> bytes);
  [[nodiscard]] static std::size_t number(Address at) {
    return static_cast<std::size_t>(at.rank) * Address::kPorts + static_cast<std::size_t>(at.port);
  }
  /// Throws std::out_of_range if nobody has opened the address.
  [[nodiscard]] Box& box(Address at) {
    const std::size_t place = number(at);
    if (place >= boxes_.size() || boxes_[place] == nullptr)
      throw std::out_of_range("a message to an address that nobody has opened");
    return *boxes_[place];
  }
  /// A number in [0, 1), drawn for one message.
  [[nodiscard]] double chance(Address from, Address to, std::uint64_t message, std::uint32_t what);

  World& world_;
  Network& network_;
  MessageFaults faults_;
  std::vector<std::unique_ptr<Box>> boxes_;  ///< by number(); null: not opened
  std::uint64_t posted_ = 0;
};

}  // namespace paceline::sim
