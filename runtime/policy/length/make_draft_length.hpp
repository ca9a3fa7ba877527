// Draft-length policies by name.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/core/speculation_policy.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/length/draft_length.hpp"

namespace paceline::policy {

/// Makes a policy. `costs`: read only where reads_costs(policy); it must then have points for
/// steps. `max_length`: tokens of the longest draft; `fixed` drafts this length always. `seed`:
/// seeds nightjar's draws.
[[nodiscard]] std::unique_ptr<DraftLengthPolicy> make_draft_length(SpeculationPolicy policy,
                                                                   CostTable costs, int max_length,
                                                                   std::uint64_t seed);

}  // namespace paceline::policy
