// The mailboxes of a simulated job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <unordered_map>
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
  struct Path {
    double arrival = 0;      ///< arrival of the last message
    std::uint64_t sent = 0;  ///< messages sent
    std::uint64_t sent_bytes = 0;
    std::uint64_t read_bytes = 0;
  };
  void send(Address from, Address to, std::span<const std::byte> bytes);
  [[nodiscard]] static std::uint64_t number(Address at) {
    return static_cast<std::uint64_t>(at.rank) * Address::kPorts +
           static_cast<std::uint64_t>(at.port);
  }
  [[nodiscard]] Path& path(Address from, Address to) {
    return paths_[number(from) << 32U | number(to)];
  }
  /// A number in [0, 1), drawn for one message.
  [[nodiscard]] double chance(Address from, Address to, std::uint64_t message, std::uint32_t what);

  World& world_;
  Network& network_;
  MessageFaults faults_;
  std::map<Address, std::unique_ptr<Box>> boxes_;
  std::unordered_map<std::uint64_t, Path> paths_;  ///< by number() of both ends
  std::uint64_t posted_ = 0;
};

}  // namespace paceline::sim
