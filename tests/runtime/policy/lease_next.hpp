// Leases in the table's order.
#pragma once

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/policy/schedule/request_table.hpp"

namespace paceline::policy::test {

inline RequestTable first_come(std::vector<Trajectory> work, std::size_t finished_before = 0) {
  return {std::move(work), std::make_unique<FirstCome>(), finished_before, 100};
}

/// Gives the group the next request that waits, whole.
inline RequestTable::Leased lease_next(RequestTable& table, int group) {
  const auto next = table.order().next({});
  if (!next) throw std::logic_error("no request waits");
  return table.lease(*next, group, kToTheEnd);
}

}  // namespace paceline::policy::test
