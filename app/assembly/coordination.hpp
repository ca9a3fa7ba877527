// The inputs of a run's coordinator, in a real job or a simulated one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "app/assembly/setup.hpp"
#include "runtime/policy/schedule/leases.hpp"
#include "runtime/policy/schedule/request_order.hpp"
#include "runtime/policy/schedule/scheduler.hpp"
#include "runtime/roles/coordinator.hpp"

namespace paceline::app {

/// Every request that is not finished, in leasing order: siblings side by side. `finished`:
/// ascending. `partial`: requests that have begun; their trajectories are moved out.
[[nodiscard]] std::vector<Trajectory> work_list(const Setup& setup,
                                                std::span<const RequestId> finished,
                                                std::span<Trajectory> partial);

/// The scheduler, which decides who gets which requests in the run.
[[nodiscard]] std::unique_ptr<policy::Scheduler> make_scheduler(const Setup& setup);

/// Tokens of each response.
using ResponseTokens = std::map<RequestId, std::uint32_t>;
/// Response lengths that the run named by schedule.lengths found; none where no run is named.
/// Throws as io::read_recorded_run() does, and UsageError where that run had none of these prompts.
[[nodiscard]] ResponseTokens known_lengths(const Setup& setup);

/// The order in which requests are leased, by schedule.policy. `lengths`: for oracle.
[[nodiscard]] std::unique_ptr<policy::RequestOrder> make_order(const Setup& setup,
                                                               ResponseTokens lengths);

/// Chunks of responses, and the KV that they take.
[[nodiscard]] policy::LeaseTerms lease_terms(const Setup& setup);

/// The chunks of the lease terms, as a line for the user.
[[nodiscard]] std::string chunk_text(const Setup& setup);

[[nodiscard]] roles::CoordinatorOptions coordinator_options(const Setup& setup);

}  // namespace paceline::app
