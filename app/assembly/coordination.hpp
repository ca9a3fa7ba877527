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

/// Every unfinished request, in leasing order: siblings are neighbours. `finished`: ascending.
/// `partial`: begun requests; their trajectories are moved out.
[[nodiscard]] std::vector<Trajectory> work_list(const Inputs& inputs,
                                                std::span<const RequestId> finished,
                                                std::span<Trajectory> partial);

/// The scheduler, which decides which group gets which requests.
[[nodiscard]] std::unique_ptr<policy::Scheduler> make_scheduler(const Inputs& inputs,
                                                                const Machine& machine,
                                                                const Plan& plan);

/// Number of tokens of each response.
using ResponseTokens = std::map<RequestId, std::uint32_t>;
/// Response lengths of the run that schedule.lengths names; empty if it names none. Throws as
/// io::read_recorded_run() does, and UsageError if that run had none of these prompts.
[[nodiscard]] ResponseTokens known_lengths(const Inputs& inputs);

/// The order in which requests are leased, by schedule.policy. `lengths`: read by policy oracle.
[[nodiscard]] std::unique_ptr<policy::RequestOrder> make_order(const Inputs& inputs,
                                                               ResponseTokens lengths);

/// Plans the chunks of responses. `kv` tells whether KV memory holds a full batch.
[[nodiscard]] policy::LeaseTerms plan_leases(const Inputs& inputs, const policy::KvPlan& kv);

/// A line for the user about the chunks of the lease terms.
[[nodiscard]] std::string chunk_text(const Inputs& inputs, const Plan& plan);

[[nodiscard]] roles::CoordinatorOptions coordinator_options(const Inputs& inputs, const Plan& plan);

}  // namespace paceline::app
