// What the coordinator of a run is handed, in a real job or a simulated one.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "app/setup.hpp"
#include "runtime/policy/scheduler.hpp"
#include "runtime/roles/coordinator.hpp"

namespace paceline::app {

/// Every request that is not finished, in leasing order: siblings side by side. `finished`:
/// ascending. `partial`: what others have so far, which is taken.
[[nodiscard]] std::vector<Trajectory> work_list(const Setup& setup,
                                                std::span<const RequestId> finished,
                                                std::span<Trajectory> partial);

/// Who gets what in the run.
[[nodiscard]] std::unique_ptr<policy::Scheduler> make_scheduler(const Setup& setup);

[[nodiscard]] roles::CoordinatorOptions coordinator_options(const Setup& setup);

}  // namespace paceline::app
