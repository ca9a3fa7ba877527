#include "app/assembly/chaos.hpp"

#include <algorithm>
#include <utility>

#include "app/assembly/drafters.hpp"
#include "runtime/chaos/delaying_mailbox.hpp"
#include "runtime/chaos/misbehaving_mailbox.hpp"
#include "runtime/chaos/random_draft_memory.hpp"
#include "runtime/chaos/random_scheduler.hpp"

namespace paceline::app {

using io::Shuffle;

std::unique_ptr<policy::Scheduler> shuffled(const io::TestSection& test, const Plan& plan,
                                            std::unique_ptr<policy::Scheduler> scheduler) {
  const bool races = test.shuffles(Shuffle::races);
  if (!test.shuffles(Shuffle::moves) && !test.shuffles(Shuffle::roles) && !races) return scheduler;
  const auto methods = static_cast<int>(drafter_names(plan).size());
  return std::make_unique<chaos::RandomScheduler>(
      std::move(scheduler), plan.layout.placement,
      chaos::Chance{.moves = test.shuffles(Shuffle::moves),
                    .roles = test.shuffles(Shuffle::roles),
                    .tail_methods = plan.best_of_n.tail_methods,
                    .race_methods = races ? std::max(1, methods) : 0,
                    .seed = test.seed});
}

std::unique_ptr<policy::DraftMemoryPolicy> draft_memory_policy(const io::TestSection& test,
                                                               int leader) {
  if (!test.shuffles(Shuffle::memory)) return std::make_unique<policy::ElasticDraftMemory>();
  return std::make_unique<chaos::RandomDraftMemory>(test.seed + static_cast<std::uint64_t>(leader));
}

std::function<std::unique_ptr<Mailbox>(Mailbox&)> delaying(const io::TestSection& test, int rank) {
  if (test.faults.delayed == 0) return nullptr;
  return [=](Mailbox& mailbox) {
    return std::make_unique<chaos::DelayingMailbox>(
        mailbox,
        chaos::DelayingMailbox::Delays{.seed = test.seed + (static_cast<std::uint64_t>(rank) << 32),
                                       .share = test.faults.delayed,
                                       .longest = test.faults.delay});
  };
}

std::unique_ptr<Mailbox> misbehaving(const io::TestSection& test, const std::string& how,
                                     Mailbox& mailbox, std::function<void(double)> sleep) {
  using chaos::Misbehaviour;
  if (how == "none") return nullptr;
  return std::make_unique<chaos::MisbehavingMailbox>(mailbox,
                                                     how == "stall"   ? Misbehaviour::stall
                                                     : how == "flood" ? Misbehaviour::flood
                                                                      : Misbehaviour::garbage,
                                                     test.seed, std::move(sleep));
}

}  // namespace paceline::app
