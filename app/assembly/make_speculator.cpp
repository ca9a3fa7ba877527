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

/// Known acceptance of the drafters that a verifier asks. Drafter ranks count as their first one.
std::vector<double> known_acceptance(const Setup& setup) {
  const std::vector<double>& all = setup.speculation.acceptance;
  const bool ahead = setup.layout.drafters() > 0;
  std::vector<double> known;
  if (ahead) known.push_back(all.front());
  for (const std::int32_t d : own_drafters(setup, Role::verifier)) known.push_back(all[d]);
  for (const std::int32_t d : tail_methods(setup)) known.push_back(all[d]);
  return known;
}

/// How requests are reconfigured, if at all. `costs`: of the verifier's steps and of all known
/// drafters.
std::optional<roles::Reconfiguration> reconfiguration(const Setup& setup, const CostTable& costs) {
  if (reconfigure_every(setup) == 0) return std::nullopt;
  std::vector<std::string> names = own_drafter_names(setup, Role::verifier);
  // Drafter ranks seldom get past their first drafter.
  if (setup.layout.drafters() > 0) names.insert(names.begin(), setup.drafters.front().name);
  for (const std::int32_t d : tail_methods(setup)) names.push_back(setup.drafters[d].name);
  roles::Reconfiguration how;
  how.every = reconfigure_every(setup);
  how.costs = costs;
  for (const std::string& name : names) {
    const auto at = std::find_if(costs.drafters.begin(), costs.drafters.end(),
                                 [&](const DrafterCosts& drafter) { return drafter.name == name; });
    if (at == costs.drafters.end()) return std::nullopt;
    how.drafters.push_back(*at);
  }
  how.window = draft_window(setup.config.speculation);
  how.max_batch = setup.config.engine.max_batch;
  if (setup.layout.drafters() > 0)
    how.groups_per_drafter = static_cast<double>(setup.layout.groups()) / setup.layout.drafters();
  return how;
}

/// Names of a verifier's draft models but the first, which the ladder ranks best: asking two for
/// one token costs both. Reserved models are for races, and tried now and then (SpecActor,
/// section 4.2: the initial selection is one method). None where costs are not known.
std::vector<std::string> reserved_models(const Setup& setup) {
  std::vector<std::string> reserved;
  if (!setup.profile_holds() || !has_draft_models(setup, Role::verifier)) return reserved;
  for (const ConfiguredDrafter& drafter : setup.drafters) {
    if (drafter.model != nullptr) reserved.push_back(drafter.name);
  }
  if (!reserved.empty()) reserved.erase(reserved.begin());
  return reserved;
}

}  // namespace

std::unique_ptr<roles::Speculator> make_speculator(
    const Setup& setup, std::vector<std::unique_ptr<draft::Drafter>> drafters, CostTable costs,
    const Clock& clock) {
  const io::SpeculationSection& settings = setup.config.speculation;
  if (drafters.empty()) return nullptr;
  roles::SpeculatorOptions options;
  options.acceptance = known_acceptance(setup);
  options.reconfigure = reconfiguration(setup, costs);
  const std::vector<std::string> own = own_drafter_names(setup, Role::verifier);
  const std::size_t first_own = setup.layout.drafters() > 0 ? 1 : 0;  // after the drafter ranks'
  const std::vector<std::string> reserved = reserved_models(setup);
  if (!reserved.empty()) options.reserved.resize(drafters.size());
  // A profile knows all drafters, but drafter ranks and reserved models cost a verifier nothing.
  std::vector<DrafterCosts> asked(drafters.size());
  for (std::size_t d = 0; d < own.size(); ++d) {
    if (std::find(reserved.begin(), reserved.end(), own[d]) != reserved.end()) {
      options.reserved[first_own + d] = true;
      continue;
    }
    const auto at = std::find_if(costs.drafters.begin(), costs.drafters.end(),
                                 [&](const DrafterCosts& known) { return known.name == own[d]; });
    if (at != costs.drafters.end()) asked.at(first_own + d) = *at;
  }
  costs.drafters = std::move(asked);
  if (const DraftHead* head = draft_head(setup);
      has_head(setup, Role::verifier) && head->stop != nullptr) {
    const std::vector<std::int32_t> mine = own_drafters(setup, Role::verifier);
    const auto at = std::find_if(mine.begin(), mine.end(), [&](std::int32_t d) {
      return setup.drafters[d].head.get() == head;
    });
    options.levels.resize(drafters.size());
    options.levels.at(first_own + (at - mine.begin())) =
        std::make_shared<roles::LearnedStop>(head->stop);
  }
  const bool adapts = !settings.paths && settings.policy == SpeculationPolicy::goodput;
  const int paths = settings.paths.value_or(adapts ? io::SpeculationSection::kMostPaths : 1);
  options.step_tokens = setup.config.engine.max_batch * draft_tokens(settings);
  return std::make_unique<roles::Speculator>(
      std::move(drafters),
      policy::make_draft_length(settings.policy, std::move(costs), settings.max_length,
                                setup.config.sampling.seed),
      draft::DraftLimits{settings.record_stops > 0
                             ? draft_tokens(settings)
                             : settings.max_tokens.value_or(settings.max_length * paths),
                         settings.max_length, paths},
      clock, std::move(options));
}

}  // namespace paceline::app
