// What the coordinator of a run is handed, in a real job or a simulated one.
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
/// ascending. `partial`: what others have so far, which is taken.
[[nodiscard]] std::vector<Trajectory> work_list(const Setup& setup,
                                                std::span<const RequestId> finished,
                                                std::span<Trajectory> partial);

/// Who gets what in the run.
[[nodiscard]] std::unique_ptr<policy::Scheduler> make_scheduler(const Setup& setup);

/// Tokens of responses.
using ResponseTokens = std::map<RequestId, std::uint32_t>;
/// Those that the run found which schedule.lengths names; none where it names none. Throws as
/// io::read_recorded_run() does, and UsageError where that run had none of these prompts.
[[nodiscard]] ResponseTokens known_lengths(const Setup& setup);

/// In which order requests are leased: schedule.policy. `lengths`: for oracle.
[[nodiscard]] std::unique_ptr<policy::RequestOrder> make_order(const Setup& setup,
                                                               ResponseTokens lengths);

/// Chunks of responses, and the KV that they take.
[[nodiscard]] policy::LeaseTerms lease_terms(const Setup& setup);

/// Those, for the user.
[[nodiscard]] std::string chunk_text(const Setup& setup);

[[nodiscard]] roles::CoordinatorOptions coordinator_options(const Setup& setup);

}  // namespace paceline::app
