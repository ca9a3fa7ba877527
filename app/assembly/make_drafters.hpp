// Makes a rank's own drafters.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/thread_pool.hpp"
#include "runtime/draft/drafter.hpp"

namespace paceline::app {

struct Setup;
class WeightStore;

/// Makes the drafters `which`, indices into setup.drafters (own_drafters()). `alone`: the group of
/// this rank alone, for draft models are not sharded. `embedding`: the target's, which a head
/// reads; null on ranks without a head. All arguments but `embedding` and `which` outlive the
/// drafters.
[[nodiscard]] std::vector<std::unique_ptr<draft::Drafter>> make_drafters(
    const Setup& setup, kernels::Backend& backend, WeightStore& weights, TensorParallelGroup& alone,
    ThreadPool& pool, std::shared_ptr<const kernels::Embedding> embedding,
    std::span<const std::int32_t> which);

}  // namespace paceline::app
