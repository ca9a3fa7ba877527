// The inputs of a run's coordinator, in a real job or a simulated one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/assembly/plan.hpp"
#include "runtime/policy/schedule/leases.hpp"
#include "runtime/policy/schedule/request_order.hpp"
#include "runtime/policy/schedule/scheduler.hpp"
#include "runtime/roles/coordinator.hpp"

namespace paceline::app {

/// Every request that is not finished, in leasing order: siblings side by side. `finished`:
/// ascending. `partial`: requests that have begun; their trajectories are moved out.
[[nodiscard]] std::vector<Trajectory> work_list(const Inputs& inputs,
                                                std::span<const RequestId> finished,
                                                std::span<Trajectory> partial);

/// The scheduler, which decides who gets which requests in the run.
[[nodiscard]] std::unique_ptr<policy::Scheduler> make_scheduler(const Inputs& inputs,
                                                                const Machine& machine,
                                                                const Plan& plan);

/// Tokens of each response.
using ResponseTokens = std::map<RequestId, std::uint32_t>;
/// Response lengths that the run named by schedule.lengths found; none where no run is named.
/// Throws as io::read_recorded_run() does, and UsageError where that run had none of these prompts.
[[nodiscard]] ResponseTokens known_lengths(const Inputs& inputs);

/// The order in which requests are leased, by schedule.policy. `lengths`: for oracle.
[[nodiscard]] std::unique_ptr<policy::RequestOrder> make_order(const Inputs& inputs,
                                                               ResponseTokens lengths);

/// Chunks of responses, and the KV that they take.
[[nodiscard]] policy::LeaseTerms plan_leases(const Inputs& inputs, const policy::KvPlan& kv);

/// The chunks of the lease terms, as a line for the user.
[[nodiscard]] std::string chunk_text(const Inputs& inputs, const Plan& plan);

[[nodiscard]] roles::CoordinatorOptions coordinator_options(const Inputs& inputs, const Plan& plan);

}  // namespace paceline::app
