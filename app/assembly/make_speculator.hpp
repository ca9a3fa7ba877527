// Makes a verifier's speculator, with the policy of draft lengths.
#pragma once

#include <memory>

#include "runtime/core/clock.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/speculation/speculator.hpp"

namespace paceline::app {

struct Inputs;
struct Plan;

/// Makes the speculator of one verifier; null: the roster is empty. `roster`: with a drafter in
/// each entry. `costs`: for policies that read costs.
[[nodiscard]] std::unique_ptr<speculation::Speculator> make_speculator(
    const Inputs& inputs, const Plan& plan, speculation::DrafterRoster roster, CostTable costs,
    const Clock& clock);

}  // namespace paceline::app
