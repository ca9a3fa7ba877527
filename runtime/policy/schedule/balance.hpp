// The loads of a run's groups and the requests that could move between them: what rebalance() and
// grown_placement() are asked with.
#pragma once

#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/policy/schedule/rebalance.hpp"
#include "runtime/policy/schedule/scheduler.hpp"

namespace paceline::policy {

struct Balance {
  /// Requests of groups that are to end are left out. A request on a move counts where it goes.
  explicit Balance(const RunState& run);

  std::vector<GroupLoad> loads;   ///< [groups of the run]
  std::vector<Movable> requests;  ///< Movable::group is an index into `loads`
  std::vector<RequestId> ids;     ///< [requests]
};

}  // namespace paceline::policy
