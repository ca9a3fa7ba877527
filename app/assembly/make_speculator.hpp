// Makes a verifier's speculator: the policy of draft lengths, and whether requests are
// reconfigured.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/core/clock.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/speculation/speculator.hpp"

namespace paceline::app {

struct Inputs;
struct Plan;

/// Tokens of a request from one reconfiguration to the next; 0: never. `auto` stands for the
/// paper's number under goodput where drafter ranks are laid out and costs are known, for only
/// there is a mode to choose. Elsewhere `auto` is 0: goodput by itself sets each request's length
/// at every step, and a fixed length is to stay fixed.
[[nodiscard]] std::uint32_t reconfigure_every(const Inputs& inputs, const Plan& plan);
/// Why no request is reconfigured although the configuration asks for it; empty where requests are
/// reconfigured, or nobody asks, or no rank drafts for others.
[[nodiscard]] std::string not_reconfigured(const Inputs& inputs, const Plan& plan);

/// The speculator of one verifier, null without drafters. `roster`: with a drafter in each entry.
/// `costs`: for policies that read costs and for reconfiguration.
[[nodiscard]] std::unique_ptr<speculation::Speculator> make_speculator(
    const Inputs& inputs, const Plan& plan, speculation::DrafterRoster roster, CostTable costs,
    const Clock& clock);

}  // namespace paceline::app
