#include "app/assembly/make_speculator.hpp"

#include <utility>

#include "app/assembly/drafters.hpp"
#include "app/assembly/plan.hpp"
#include "runtime/policy/length/make_draft_length.hpp"
#include "runtime/speculation/learned_stop.hpp"

namespace paceline::app {

std::unique_ptr<speculation::Speculator> make_speculator(const Inputs& inputs, const Plan& plan,
                                                         speculation::DrafterRoster roster,
                                                         CostTable costs, const Clock& clock) {
  const io::SpeculationSection& settings = inputs.config.speculation;
  if (roster.empty()) return nullptr;
  speculation::SpeculatorOptions options;
  // Draft lengths are chosen as if two kinds of drafters cost nothing: drafter ranks, and reserved
  // models, which draft only in races and on trial.
  costs.drafters.clear();
  for (speculation::RosterEntry& entry : roster) {
    const bool own = entry.kind == speculation::DrafterKind::own;
    costs.drafters.push_back(own && !entry.reserved ? entry.costs.value_or(DrafterCosts{})
                                                    : DrafterCosts{});
    const DraftHead* head = plan.drafters[entry.place].head;
    if (own && head != nullptr && head->stop != nullptr)
      entry.levels = std::make_shared<speculation::LearnedStop>(head->stop);
  }
  const bool adapts = !settings.paths && settings.policy == SpeculationPolicy::goodput;
  const int paths = settings.paths.value_or(adapts ? io::SpeculationSection::kMostPaths : 1);
  options.step_tokens = inputs.config.engine.max_batch * draft_tokens(settings);
  return std::make_unique<speculation::Speculator>(
      std::move(roster),
      policy::make_draft_length(settings.policy, std::move(costs), settings.max_length,
                                inputs.config.sampling.seed),
      draft::DraftLimits{settings.record_stops() > 0
                             ? draft_tokens(settings)
                             : settings.max_tokens().value_or(settings.max_length * paths),
                         settings.max_length, paths},
      clock, std::move(options));
}

}  // namespace paceline::app
