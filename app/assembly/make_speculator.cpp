#include "app/assembly/make_speculator.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "app/assembly/drafters.hpp"
#include "app/assembly/plan.hpp"
#include "runtime/policy/length/make_draft_length.hpp"
#include "runtime/speculation/learned_stop.hpp"

namespace paceline::app {

std::uint32_t reconfigure_every(const Inputs& inputs, const Plan& plan) {
  const io::SpeculationSection& settings = inputs.config.speculation;
  if (plan.drafters.empty() || !not_reconfigured(inputs, plan).empty()) return 0;
  const bool by_itself = plan.layout.drafters() > 0 && plan.costs.hold() &&
                         settings.policy == SpeculationPolicy::goodput;
  return static_cast<std::uint32_t>(
      settings.reconfigure.value_or(by_itself ? policy::kReconfigureEvery : 0));
}

std::string not_reconfigured(const Inputs& inputs, const Plan& plan) {
  const bool asked = inputs.config.speculation.reconfigure.value_or(0) > 0;
  if (!asked || plan.layout.drafters() == 0 || plan.costs.hold()) return "";
  return "what drafter ranks cost is known by engine.profile alone";
}

namespace {

/// How requests are reconfigured, if at all. `costs`: of the verifier's steps.
std::optional<speculation::Reconfiguration> reconfiguration(
    const Inputs& inputs, const Plan& plan, const speculation::DrafterRoster& roster,
    const CostTable& costs) {
  const bool known =
      std::all_of(roster.begin(), roster.end(), [](const auto& entry) { return entry.costs; });
  if (reconfigure_every(inputs, plan) == 0 || !known) return std::nullopt;
  speculation::Reconfiguration how;
  how.every = reconfigure_every(inputs, plan);
  how.costs = costs;
  how.window = plan.speculation.window;
  how.max_batch = inputs.config.engine.max_batch;
  if (plan.layout.drafters() > 0)
    how.groups_per_drafter = static_cast<double>(plan.layout.groups()) / plan.layout.drafters();
  return how;
}

}  // namespace

std::unique_ptr<speculation::Speculator> make_speculator(const Inputs& inputs, const Plan& plan,
                                                         speculation::DrafterRoster roster,
                                                         CostTable costs, const Clock& clock) {
  const io::SpeculationSection& settings = inputs.config.speculation;
  if (roster.empty()) return nullptr;
  speculation::SpeculatorOptions options;
  options.reconfigure = reconfiguration(inputs, plan, roster, costs);
  // Drafter ranks and reserved models cost a verifier nothing.
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
