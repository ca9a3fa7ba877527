// What tests disturb a job with (section test of the configuration): the program's one door to
// runtime/chaos.
#pragma once

#include <functional>
#include <memory>

#include "app/assembly/setup.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/policy/plan/draft_memory.hpp"
#include "runtime/policy/schedule/scheduler.hpp"

namespace paceline::app {

/// The scheduler, or one that leaves to chance what test.shuffle names, and the rest to it.
[[nodiscard]] std::unique_ptr<policy::Scheduler> shuffled(
    const Setup& setup, std::unique_ptr<policy::Scheduler> scheduler);

/// When a leader's draft models lend their memory: by chance where test.shuffle says so.
[[nodiscard]] std::unique_ptr<policy::DraftMemoryPolicy> draft_memory_policy(const Setup& setup,
                                                                             int leader);

/// Makes mailboxes of a rank that delay messages (test.faults); null: none is delayed.
[[nodiscard]] std::function<std::unique_ptr<Mailbox>(Mailbox&)> delaying(const Setup& setup,
                                                                         int rank);

/// A mailbox that misbehaves as test.faults.drafters or draft_servers says; null where that is
/// none. `sleep` is called to stall.
[[nodiscard]] std::unique_ptr<Mailbox> misbehaving(const Setup& setup, const std::string& how,
                                                   Mailbox& mailbox,
                                                   std::function<void(double)> sleep);

}  // namespace paceline::app
