#include "app/assembly/make_speculator.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "app/assembly/drafters.hpp"
#include "app/assembly/setup.hpp"
#include "runtime/policy/length/make_draft_length.hpp"
#include "runtime/speculation/learned_stop.hpp"

namespace paceline::app {

std::uint32_t reconfigure_every(const Setup& setup) {
  const io::SpeculationSection& settings = setup.config.speculation;
  if (setup.drafters.empty() || !not_reconfigured(setup).empty()) return 0;
  const bool by_itself = setup.layout.drafters() > 0 && setup.profile_holds() &&
                         settings.policy == SpeculationPolicy::goodput;
  return static_cast<std::uint32_t>(
      settings.reconfigure.value_or(by_itself ? policy::kReconfigureEvery : 0));
}

std::string not_reconfigured(const Setup& setup) {
  const bool asked = setup.config.speculation.reconfigure.value_or(0) > 0;
  if (!asked || setup.layout.drafters() == 0 || setup.profile_holds()) return "";
  return "what drafter ranks cost is known by engine.profile alone";
}

namespace {

/// How requests are reconfigured, if at all. `costs`: of the verifier's steps.
std::optional<speculation::Reconfiguration> reconfiguration(
    const Setup& setup, const speculation::DrafterRoster& roster, const CostTable& costs) {
  const bool known =
      std::all_of(roster.begin(), roster.end(), [](const auto& entry) { return entry.costs; });
  if (reconfigure_every(setup) == 0 || !known) return std::nullopt;
  speculation::Reconfiguration how;
  how.every = reconfigure_every(setup);
  how.costs = costs;
  how.window = draft_window(setup.config.speculation);
  how.max_batch = setup.config.engine.max_batch;
  if (setup.layout.drafters() > 0)
    how.groups_per_drafter = static_cast<double>(setup.layout.groups()) / setup.layout.drafters();
  return how;
}

}  // namespace

std::unique_ptr<speculation::Speculator> make_speculator(const Setup& setup,
                                                         speculation::DrafterRoster roster,
                                                         CostTable costs, const Clock& clock) {
  const io::SpeculationSection& settings = setup.config.speculation;
  if (roster.empty()) return nullptr;
  speculation::SpeculatorOptions options;
  options.reconfigure = reconfiguration(setup, roster, costs);
  // Drafter ranks and reserved models cost a verifier nothing.
  costs.drafters.clear();
  for (speculation::RosterEntry& entry : roster) {
    const bool own = entry.kind == speculation::DrafterKind::own;
    costs.drafters.push_back(own && !entry.reserved ? entry.costs.value_or(DrafterCosts{})
                                                    : DrafterCosts{});
    const DraftHead* head = setup.drafters[entry.place].head.get();
    if (own && head != nullptr && head->stop != nullptr)
      entry.levels = std::make_shared<speculation::LearnedStop>(head->stop);
  }
  const bool adapts = !settings.paths && settings.policy == SpeculationPolicy::goodput;
  const int paths = settings.paths.value_or(adapts ? io::SpeculationSection::kMostPaths : 1);
  options.step_tokens = setup.config.engine.max_batch * draft_tokens(settings);
  return std::make_unique<speculation::Speculator>(
      std::move(roster),
      policy::make_draft_length(settings.policy, std::move(costs), settings.max_length,
                                setup.config.sampling.seed),
      draft::DraftLimits{settings.record_stops() > 0
                             ? draft_tokens(settings)
                             : settings.max_tokens().value_or(settings.max_length * paths),
                         settings.max_length, paths},
      clock, std::move(options));
}

}  // namespace paceline::app
