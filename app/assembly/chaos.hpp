// Disturbances that tests add to a job (section `test` of the configuration): random decisions,
// delayed messages, and drafter ranks or draft servers that misbehave.
#pragma once

#include <functional>
#include <memory>

#include "app/assembly/plan.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/policy/plan/draft_memory.hpp"
#include "runtime/policy/schedule/scheduler.hpp"

namespace paceline::app {

/// Returns a scheduler that makes the decisions named in test.shuffle (moves, roles, races) at
/// random and leaves all others to `scheduler`. If none of these is named, returns `scheduler`.
[[nodiscard]] std::unique_ptr<policy::Scheduler> shuffled(
    const io::TestSection& test, const Plan& plan, std::unique_ptr<policy::Scheduler> scheduler);

/// Returns the policy that decides when the draft models of the verifier `leader` lend their memory
/// to KV. Its decisions are random if test.shuffle names `memory`.
[[nodiscard]] std::unique_ptr<policy::DraftMemoryPolicy> draft_memory_policy(
    const io::TestSection& test, int leader);

/// Returns a function that wraps a mailbox of `rank` to delay received messages; null: no delays.
[[nodiscard]] std::function<std::unique_ptr<Mailbox>(Mailbox&)> delaying(
    const io::TestSection& test, int rank);

/// Wraps `mailbox` in one that misbehaves. `how`: value of test.faults.drafters or
/// test.faults.draft_servers; "none": returns null. `sleep`: sleeps for a number of seconds.
[[nodiscard]] std::unique_ptr<Mailbox> misbehaving(const io::TestSection& test,
                                                   const std::string& how, Mailbox& mailbox,
                                                   std::function<void(double)> sleep);

}  // namespace paceline::app
