// Loads of a run's groups, and the requests that could move between them: the input of rebalance()
// and grown_placement().
#pragma once

#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/policy/schedule/rebalance.hpp"
#include "runtime/policy/schedule/scheduler.hpp"

namespace paceline::policy {

struct Balance {
  /// Leaves out requests of groups that are to end. A request on a move counts at its destination.
  /// `drafted`: drafted rows that a step has for each request.
  explicit Balance(const RunState& run, double drafted = 0);

  std::vector<GroupLoad> loads;   ///< [groups of the run]
  std::vector<Movable> requests;  ///< Movable::group is an index into `loads`
  std::vector<RequestId> ids;     ///< [requests]
};

}  // namespace paceline::policy
