// Disturbance of a job by tests (section test of the configuration). No other file of app/ uses
// runtime/chaos.
#pragma once

#include <functional>
#include <memory>

#include "app/assembly/plan.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/policy/plan/draft_memory.hpp"
#include "runtime/policy/schedule/scheduler.hpp"

namespace paceline::app {

/// Returns `scheduler`, or a random one around it that makes the decisions named by test.shuffle.
[[nodiscard]] std::unique_ptr<policy::Scheduler> shuffled(
    const io::TestSection& test, const Plan& plan, std::unique_ptr<policy::Scheduler> scheduler);

/// The policy by which a leader's draft models lend memory: random if test.shuffle says so.
[[nodiscard]] std::unique_ptr<policy::DraftMemoryPolicy> draft_memory_policy(
    const io::TestSection& test, int leader);

/// Returns a maker of mailboxes that delay messages (test.faults); null: no message is delayed.
[[nodiscard]] std::function<std::unique_ptr<Mailbox>(Mailbox&)> delaying(
    const io::TestSection& test, int rank);

/// Makes a mailbox that misbehaves as `how` says (test.faults.drafters or draft_servers); null:
/// `how` is "none". `sleep` is called to stall.
[[nodiscard]] std::unique_ptr<Mailbox> misbehaving(const io::TestSection& test,
                                                   const std::string& how, Mailbox& mailbox,
                                                   std::function<void(double)> sleep);

}  // namespace paceline::app
