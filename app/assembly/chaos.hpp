// Disturbance of a job by tests (section test of the configuration): the program's one door to
// runtime/chaos.
#pragma once

#include <functional>
#include <memory>

#include "app/assembly/plan.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/policy/plan/draft_memory.hpp"
#include "runtime/policy/schedule/scheduler.hpp"

namespace paceline::app {

/// The scheduler, or a random one that makes the decisions of test.shuffle and leaves it the rest.
[[nodiscard]] std::unique_ptr<policy::Scheduler> shuffled(
    const io::TestSection& test, const Plan& plan, std::unique_ptr<policy::Scheduler> scheduler);

/// The policy by which a leader's draft models lend memory: random where test.shuffle says so.
[[nodiscard]] std::unique_ptr<policy::DraftMemoryPolicy> draft_memory_policy(
    const io::TestSection& test, int leader);

/// Makes mailboxes of a rank that delay messages (test.faults); null: none is delayed.
[[nodiscard]] std::function<std::unique_ptr<Mailbox>(Mailbox&)> delaying(
    const io::TestSection& test, int rank);

/// Makes a mailbox that misbehaves; null: it does not. `how`: test.faults.drafters or
/// draft_servers. `sleep` is called to stall.
[[nodiscard]] std::unique_ptr<Mailbox> misbehaving(const io::TestSection& test,
                                                   const std::string& how, Mailbox& mailbox,
                                                   std::function<void(double)> sleep);

}  // namespace paceline::app
