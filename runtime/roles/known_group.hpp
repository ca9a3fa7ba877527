// A verifier group as the coordinator knows it: what it reported, and what it was sent.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "runtime/policy/move_split.hpp"
#include "runtime/policy/scheduler.hpp"
#include "runtime/roles/messages.hpp"

namespace paceline::roles {

struct KnownGroup {
  GroupRanks ranks;
  Status status;                           ///< the last it sent
  bool there = false;                      ///< it has sent one
  std::optional<policy::MoveCosts> costs;  ///< what it told of them
  std::uint64_t leases_sent = 0;
  std::set<std::uint32_t> prompts;  ///< that it was sent, by index

  /// Requests it could take beside those on their way.
  [[nodiscard]] int room() const {
    return status.room - static_cast<int>(leases_sent - status.leases_received);
  }
  /// It has handed in its unfinished requests, those that were on their way too.
  [[nodiscard]] bool stopped() const {
    return status.stopped != 0 && status.leases_received == leases_sent;
  }
  [[nodiscard]] policy::GroupState state() const {
    return {ranks, room(), status.active, costs ? &*costs : nullptr};
  }
};
using KnownGroups = std::map<int, KnownGroup>;  ///< by leader

}  // namespace paceline::roles
