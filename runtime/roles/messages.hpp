// What the coordinator and the verifier groups say to each other.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"

namespace paceline::roles {

/// Coordinator to verifier: generate this response.
struct Lease {
  Trajectory trajectory;  ///< id, and what it already has when it is resumed
  std::vector<TokenId> prompt;
  NoiseKey noise;
};

/// Coordinator to verifier: hand in what is unfinished after the current step.
struct Stop {};

/// Coordinator to all: nothing more will come.
struct Finish {};

/// Verifier to coordinator, whenever something changed and at least every half second while it
/// works.
struct Status {
  std::int32_t room = 0;  ///< further requests it could take, before leases under way
  std::int32_t active = 0;
  std::uint64_t leases_received = 0;  ///< in all: tells which leases `room` already counts
  std::uint64_t tokens = 0;           ///< response tokens generated, in all
  std::int32_t stopped = 0;           ///< 1: has handed in its unfinished requests
  std::vector<RequestId> finished;    ///< since the last status; on disk
};

/// Any rank to coordinator: a signal asked this rank to stop.
struct StopRequest {};

/// Any rank to coordinator, last of all.
struct Summary {
  RankSummary rank;
};

using Message = std::variant<Lease, Stop, Finish, Status, StopRequest, Summary>;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);
/// Throws std::logic_error on bytes that encode() did not make.
[[nodiscard]] Message decode(std::span<const std::byte> bytes);

}  // namespace paceline::roles
