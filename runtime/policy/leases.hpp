// How many further requests a verifier group is leased.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace paceline::policy {

struct LeaseFacts {
  int room = 0;                ///< further requests the group could take
  int held = 0;                ///< that it has
  std::size_t unfinished = 0;  ///< requests of all groups, and those that wait
  double share = 1;            ///< the group's part of the ranks that verify
};

/// Near the end no group takes more than its share of what is unfinished, so that none sits on a
/// queue while another runs dry.
[[nodiscard]] inline int leases_due(const LeaseFacts& facts) {
  const auto share =
      static_cast<int>(std::ceil(static_cast<double>(facts.unfinished) * facts.share - 1e-9));
  return std::max(0, std::min(facts.room, share - facts.held));
}

}  // namespace paceline::policy
