// Makes a verifier's speculator: the policy of draft lengths, and whether requests are
// reconfigured.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/speculation/speculator.hpp"

namespace paceline::app {

struct Setup;

/// Tokens of a request from one reconfiguration to the next; 0: never. Where it is auto it is the
/// paper's number under goodput where ranks draft for others, at costs that are known: only there
/// is a mode to choose. Goodput gives each request its length at every step by itself, and a fixed
/// length is to stay fixed.
[[nodiscard]] std::uint32_t reconfigure_every(const Setup& setup);
/// Why no request is reconfigured although the configuration asks for it; empty: it does not ask,
/// nothing drafts, or requests are.
[[nodiscard]] std::string not_reconfigured(const Setup& setup);

/// The speculator of one verifier, null without drafters. `costs` are asked for by the policies
/// that read them and by reconfiguration.
[[nodiscard]] std::unique_ptr<roles::Speculator> make_speculator(
    const Setup& setup, std::vector<std::unique_ptr<draft::Drafter>> drafters, CostTable costs,
    const Clock& clock);

}  // namespace paceline::app
