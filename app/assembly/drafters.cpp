#include "app/assembly/drafters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/assembly/inputs.hpp"
#include "app/assembly/plan.hpp"
#include "runtime/core/error.hpp"
#include "runtime/draft/text_age.hpp"

namespace paceline::app {

int draft_tokens(const io::SpeculationSection& settings) {
  if (settings.drafters.empty()) return 0;
  const int tokens =
      settings.max_tokens().value_or(settings.max_length * settings.paths.value_or(1));
  return settings.record_stops() > 0 ? std::max(tokens, speculation::kMostRecordedRows) : tokens;
}

speculation::StopRecorderOptions stop_recording(const io::SpeculationSection& settings) {
  speculation::StopRecorderOptions options;
  options.every = settings.record_stops();
  options.most = settings.max_tokens().value_or(StopPoint::kCalls * StopPoint::kStates);
  options.foreknows = settings.drafters.front().noise;
  return options;
}

bool has_draft_models(const Plan& plan, Role role) {
  return role == Role::drafter || (role == Role::verifier && plan.layout.drafters() == 0);
}

namespace {

/// Returns BestOfNPlan::tail_methods for a plan in which best-of-N is on.
std::vector<std::int32_t> tail_methods(const Plan& plan) {
  const auto is_model = [](const PlannedDrafter& d) { return d.model != nullptr; };
  // Freed ranks need not use this drafter, because the last requests get its drafts anyway: drafter
  // ranks mostly use drafter 0, and a verifier mostly uses its first draft model.
  const auto first = plan.layout.drafters() > 0 ? plan.drafters.begin()
                                                : std::ranges::find_if(plan.drafters, is_model);
  std::vector<std::int32_t> methods;
  for (auto d = plan.drafters.begin(); d != plan.drafters.end(); ++d) {
    if (d != first && is_model(*d))
      methods.push_back(static_cast<std::int32_t>(d - plan.drafters.begin()));
  }
  return methods;
}

}  // namespace

BestOfNPlan plan_best_of_n(const Inputs& inputs, const Plan& plan) {
  const io::SpeculationSection& settings = inputs.config.speculation;
  const bool shuffled = inputs.config.test.shuffles(io::Shuffle::roles);
  BestOfNPlan how;
  how.race_methods = static_cast<int>(own_drafters(plan, Role::verifier).size()) +
                     (plan.layout.drafters() > 0 ? 1 : 0);
  if (settings.best_of_n && plan.layout.groups() > 1) {
    how.races = how.race_methods > 1;
    if (settings.mode != SpeculationMode::coupled && (plan.costs.profile_holds() || shuffled))
      how.tail_methods = tail_methods(plan);
  }
  how.roles_change = shuffled || !how.tail_methods.empty() || plan.tail_groups.grow();
  return how;
}

const DraftHead* draft_head(const Plan& plan) {
  for (const PlannedDrafter& drafter : plan.drafters) {
    if (drafter.head != nullptr) return drafter.head;
  }
  return nullptr;
}

std::vector<std::int32_t> read_layers(const Inputs& inputs, const Plan& plan) {
  const DraftHead* head = draft_head(plan);
  if (head == nullptr) return {};
  return feature_layers(head->config, inputs.target.config);
}

bool has_own_embeddings(const Plan& plan) {
  const DraftHead* head = draft_head(plan);
  return head != nullptr && paceline::has_own_embeddings(head->config);
}

std::uint64_t feature_row_bytes(const Inputs& inputs, const Plan& plan) {
  return std::uint64_t{1} * read_layers(inputs, plan).size() * inputs.target.config.hidden *
         size_of(inputs.target.compute);
}

int longest_draft(const Inputs& inputs, const Plan& plan) {
  return std::max(inputs.config.speculation.max_length, plan.speculation.window.tokens);
}

bool has_head(const Plan& plan, Role role) {
  if (draft_head(plan) == nullptr) return false;
  const bool models = std::ranges::any_of(
      plan.drafters, [](const auto& drafter) { return drafter.model != nullptr; });
  const bool ahead = plan.layout.drafters() > 0 && !models;
  return role == (ahead ? Role::drafter : Role::verifier);
}

void require_chains(const Inputs& inputs, const Plan& plan) {
  if (!has_head(plan, Role::drafter)) return;
  if (inputs.config.speculation.record_stops() > 0) {
    throw UsageError(
        fmt::format("layout.drafters: record_stops records a head's trees on verifiers; expected 0 "
                    "drafter ranks, found {}",
                    plan.layout.drafters()));
  }
  if (draft_head(plan)->stop != nullptr) {
    throw UsageError(
        "speculation.drafters: a stop network judges trees, but a head on drafter ranks drafts "
        "chains; remove the drafter's key stop, or set layout.drafters: 0");
  }
}

std::vector<std::int32_t> own_drafters(const Plan& plan, Role role,
                                       const policy::DrafterPlace* place) {
  if (place != nullptr && place->method) return {*place->method};
  std::vector<std::int32_t> own;
  for (std::size_t d = 0; d < plan.drafters.size(); ++d) {
    const PlannedDrafter& drafter = plan.drafters[d];
    const bool has = drafter.head != nullptr    ? has_head(plan, role)
                     : drafter.model != nullptr ? has_draft_models(plan, role)
                                                : true;
    if (has) own.push_back(static_cast<std::int32_t>(d));
  }
  return own;
}

policy::DrafterDeal drafter_deal(const Plan& plan) {
  const bool learns = std::ranges::any_of(
      plan.drafters, [](const auto& d) { return d.setting.method == io::DrafterMethod::suffix; });
  return learns ? policy::DrafterDeal::by_prompt : policy::DrafterDeal::by_request;
}

speculation::DrafterRoster drafter_roster(const Plan& plan, const CostTable* costs) {
  using Kind = speculation::DrafterKind;
  speculation::DrafterRoster roster;
  const auto add = [&](Kind kind, std::int32_t d, const std::string& name) {
    const PlannedDrafter& drafter = plan.drafters[d];
    speculation::RosterEntry& entry = roster.emplace_back(speculation::RosterEntry{
        .name = name, .kind = kind, .place = d, .acceptance = drafter.acceptance});
    if (costs == nullptr) return;
    const auto at = std::ranges::find(costs->drafters, drafter.name, &DrafterCosts::name);
    if (at != costs->drafters.end()) entry.costs = *at;
  };
  // Drafter ranks mostly use drafter 0, so their entry has the acceptance and costs of drafter 0.
  if (plan.layout.drafters() > 0) add(Kind::ahead, 0, "drafter-ranks");
  bool has_model = false;
  for (const std::int32_t d : own_drafters(plan, Role::verifier)) {
    add(Kind::own, d, plan.drafters[d].name);
    if (plan.drafters[d].model == nullptr) continue;
    // If a cost profile applies, the first draft model is the best one by the draft ladder
    // (draft_ladder.hpp). Only this model drafts for all requests. The others draft only in races
    // and on trial. If two models drafted for every request, each step would cost the time of both
    // (SpecActor, section 4.2, also selects one method at first).
    roster.back().reserved = plan.costs.profile_holds() && std::exchange(has_model, true);
  }
  for (const std::int32_t d : plan.best_of_n.tail_methods)
    add(Kind::tail, d, "ahead:" + plan.drafters[d].name);
  return roster;
}

std::vector<std::string> drafter_names(const Plan& plan) {
  std::vector<std::string> names;
  for (speculation::RosterEntry& entry : drafter_roster(plan))
    names.push_back(std::move(entry.name));
  return names;
}

std::vector<std::string> counted_drafters(const Inputs& inputs, const Plan& plan) {
  std::vector<std::string> names = drafter_names(plan);
  if (!inputs.config.speculation.history) return names;
  for (int age = 1; age < draft::kAgeClasses; ++age)
    names.push_back("history:" + draft::ages_of_class(age));
  return names;
}

}  // namespace paceline::app
