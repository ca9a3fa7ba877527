// Makes a rank's own drafters.
#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/role.hpp"
#include "runtime/core/thread_pool.hpp"
#include "runtime/draft/drafter.hpp"

namespace paceline::app {

struct Setup;

/// Those that a rank of this role makes for itself, in their order. `alone`: of this rank, for
/// draft models are not sharded. All arguments outlive the drafters.
[[nodiscard]] std::vector<std::unique_ptr<draft::Drafter>> make_drafters(const Setup& setup,
                                                                         kernels::Backend& backend,
                                                                         TensorParallelGroup& alone,
                                                                         ThreadPool& pool,
                                                                         Role role);

}  // namespace paceline::app
