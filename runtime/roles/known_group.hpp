// A verifier group as the coordinator knows it: its reports, and the orders sent to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "runtime/policy/schedule/move_split.hpp"
#include "runtime/policy/schedule/scheduler.hpp"
#include "runtime/protocol/messages.hpp"

namespace paceline::roles {

struct KnownGroup {
  policy::GroupRanks ranks;
  protocol::Status status;                 ///< the last status that the group sent
  bool there = false;                      ///< whether a status has come
  std::optional<policy::MoveCosts> costs;  ///< Costs::costs; absent: not reported yet
  /// A lease or a renewal that the group had not received when it sent its last status.
  struct Order {
    int requests = 0;  ///< 1 for a lease, 0 for a renewal
    int blocks = 0;    ///< KV blocks that the order needs
  };
  std::deque<Order> on_their_way;
  Order all_on_their_way;  ///< sum of on_their_way
  std::uint64_t orders_sent = 0;
  std::set<std::uint32_t> prompts;  ///< indices of prompts that the group got by leases or moves
  std::uint64_t upcoming_sent = 0;  ///< requests of the next training step sent to the group
  std::uint64_t upcoming_done = 0;  ///< how many of these the group is done with

  void sent(const Order& order) {
    on_their_way.push_back(order);
    all_on_their_way.requests += order.requests;
    all_on_their_way.blocks += order.blocks;
    ++orders_sent;
  }
  void reported(protocol::Status now) {
    status = std::move(now);
    there = true;
    while (on_their_way.size() > orders_sent - status.orders_received) {
      all_on_their_way.requests -= on_their_way.front().requests;
      all_on_their_way.blocks -= on_their_way.front().blocks;
      on_their_way.pop_front();
    }
  }
  /// Whether the group has received all its orders, and handed in every unfinished request.
  [[nodiscard]] bool stopped() const {
    return status.stopped != 0 && status.orders_received == orders_sent;
  }
  /// How many more requests of the next training step fit; 0 before a status, or with other work.
  [[nodiscard]] std::size_t upcoming_room() const {
    if (!there || status.active > 0 || !on_their_way.empty() || status.room <= 0) return 0;
    const auto room = static_cast<std::uint64_t>(status.room);
    return static_cast<std::size_t>(room - std::min(room, upcoming_sent - upcoming_done));
  }
  [[nodiscard]] policy::GroupState state() const {
    return {.ranks = ranks,
            .room = status.room - all_on_their_way.requests,
            .kv_room = status.kv_room - all_on_their_way.blocks,
            .active = status.active,
            .costs = costs ? &*costs : nullptr};
  }
};
using KnownGroups = std::map<int, KnownGroup>;  ///< by leader

}  // namespace paceline::roles
