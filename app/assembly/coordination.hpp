// Makes the parts of a run's coordinator, in a real job or a simulated one. A coordinator leases
// requests to verifier groups. A lease is for a whole response or for one chunk of it.
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

/// Lists all unfinished requests, prompt by prompt in prompt_order(). `finished`: ids of finished
/// requests, ascending. `partial`: responses already begun; this call moves them to the list.
[[nodiscard]] std::vector<Trajectory> work_list(const Inputs& inputs,
                                                std::span<const RequestId> finished,
                                                std::span<Trajectory> partial);

/// Makes the scheduler, which decides on leases, moves, races and role changes.
[[nodiscard]] std::unique_ptr<policy::Scheduler> make_scheduler(const Inputs& inputs,
                                                                const Machine& machine,
                                                                const Plan& plan);

/// Length of each response, in tokens.
using ResponseTokens = std::map<RequestId, std::uint32_t>;
/// Reads response lengths from the run in schedule.lengths; empty: the setting is absent. Throws as
/// io::read_recorded_run() does, and UsageError if the recorded run has none of this run's prompts.
[[nodiscard]] ResponseTokens known_lengths(const Inputs& inputs);

/// Makes the order in which schedule.policy leases requests. Only policy `oracle` reads `lengths`.
/// Only policy `group` reads `instance`, the number of groups in a simulated engine instance.
[[nodiscard]] std::unique_ptr<policy::RequestOrder> make_order(const Inputs& inputs,
                                                               ResponseTokens lengths,
                                                               int instance = 1);

/// Plans the terms of leases, such as the length of chunks. By default, leases are for chunks only
/// if KV memory (`kv`) does not hold a full batch of sequences of the greatest length.
[[nodiscard]] policy::LeaseTerms plan_leases(const Inputs& inputs, const policy::KvPlan& kv);

/// Describes the chunks, and the reason for their length, in a line for the user.
[[nodiscard]] std::string chunk_text(const Inputs& inputs, const Plan& plan);

[[nodiscard]] roles::CoordinatorOptions coordinator_options(const Inputs& inputs, const Plan& plan);

}  // namespace paceline::app
