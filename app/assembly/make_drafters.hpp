// Makes the drafters of a rank, and a verifier's speculator, which asks drafters for drafts.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/thread_pool.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/speculation/speculator.hpp"

namespace paceline::app {

struct Inputs;
struct Plan;
class WeightStore;

/// Makes the drafter `which`, an index into Plan::drafters. `alone`: a tensor-parallel group of
/// this rank only, because draft models and heads are not sharded. `embedding`: the target's
/// embedding; may be null unless `which` is a head that reads it. All references must outlive the
/// drafter.
[[nodiscard]] std::unique_ptr<draft::Drafter> make_drafter(
    const Inputs& inputs, const Plan& plan, kernels::Backend& backend, WeightStore& weights,
    TensorParallelGroup& alone, ThreadPool& pool,
    std::shared_ptr<const kernels::Embedding> embedding, std::int32_t which);

/// Makes the speculator of one verifier. Returns null if the roster is empty. `roster`: the
/// verifier's drafters, already made. `costs`: costs of steps; costs of drafts are in the roster.
[[nodiscard]] std::unique_ptr<speculation::Speculator> make_speculator(
    const Inputs& inputs, const Plan& plan, speculation::DrafterRoster roster, CostTable costs,
    const Clock& clock);

}  // namespace paceline::app
