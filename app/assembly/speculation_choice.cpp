#include "app/assembly/speculation_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "app/assembly/draft_history.hpp"
#include "app/assembly/plan.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"

namespace paceline::app {
namespace {

/// Plans with at least this share of the fastest plan's speed count as hardly slower, because even
/// most simulated times are off by more than 5 % (tests/bench/README.md, "Calibration").
constexpr double kHardlySlower = 0.95;

/// Number of fastest plans that are always shown. A slower plan is shown only if it is chosen, or
/// if it is the fastest of its mode.
constexpr std::size_t kShown = 5;

/// Estimate of the mean number of positions that a request attends to: the longest prompt, and half
/// of a response of mean_max_tokens / 2 tokens.
double mean_context(const Inputs& inputs) {
  return inputs.sizes.longest_prompt + inputs.sizes.mean_max_tokens / 4;
}

policy::PlanFacts facts_of(const Inputs& inputs, int ranks, const ProfiledCosts& costs,
                           const TailGroups& tail, const SpeculationChoice& choice) {
  const io::RunConfig& config = inputs.config;
  policy::PlanFacts facts;
  facts.ranks = ranks;
  facts.requests = choice.requests;
  facts.max_batch = config.engine.max_batch;
  facts.context = mean_context(inputs);
  facts.longest_draft = config.speculation.max_length;
  if (drafts_always(config.speculation.policy)) facts.shortest_draft = facts.longest_draft;
  facts.verifiers = {{costs.conditions.tp, *costs.profile}};
  facts.methods = choice.methods;
  facts.prompt = inputs.sizes.longest_prompt;
  facts.longest_text = inputs.sizes.mean_max_tokens;
  facts.drain = policy::drain_of(facts.requests);
  for (const auto& [tp, table] : tail.costs) facts.joined.push_back({tp, table});
  facts.adapts = !drafts_always(config.speculation.policy);
  facts.one_by_one = choice.window.eager > 0;
  facts.outcomes = config.speculation.outcomes;
  return facts;
}

std::string how(const policy::SpeculationPlan& plan) {
  switch (plan.mode) {
    case SpeculationMode::plain:
      return "plain decoding";
    case SpeculationMode::coupled:
      return fmt::format("coupled, drafts of {} by {}", counted(plan.draft_length, "token"),
                         plan.method);
    case SpeculationMode::decoupled:
      return fmt::format("decoupled, {}, window {}, {}", counted(plan.drafters, "drafter rank"),
                         plan.draft_length, plan.method);
  }
  return "";
}

/// Turns settings "a=1 b=2" into arguments of the command line.
std::string as_arguments(const std::string& settings) {
  std::string text = "--set ";
  for (const char c : settings) text += c == ' ' ? " --set " : std::string(1, c);
  return text;
}

/// Number of groups in the layout, if the configuration fixes it.
std::optional<int> settled_groups(const Inputs& inputs) {
  const io::LayoutSection& layout = inputs.config.layout;
  if (layout.verifier_tp && layout.verifier_tp->size() > 1)
    return static_cast<int>(layout.verifier_tp->size());
  return layout.verifier_groups;
}

/// The reason why speculation cannot be planned; empty: it can be.
std::string no_plan(const policy::Placement& first, const ProfiledCosts& costs) {
  const std::vector<int> degrees = first.degrees();
  if (degrees.size() > 1)
    return fmt::format(
        "layout.verifier_tp names groups of degrees {}, but plans are made for a single degree",
        fmt::join(degrees, " and "));
  if (!costs.profile)
    return "no costs are known; measure them with `paceline profile` and set engine.profile";
  if (costs.profile_holds()) return "";
  return fmt::format(
      "engine.profile does not apply to this run (measure it again with `paceline profile`): {}",
      costs.fault);
}

/// The fastest plan that is decoupled or, if `decoupled` is false, that is not; null: none.
const policy::SpeculationPlan* rival(const SpeculationChoice& choice, bool decoupled) {
  const auto found = std::ranges::find_if(choice.plans, [&](const auto& plan) {
    return (plan.mode == SpeculationMode::decoupled) == decoupled;
  });
  return found == choice.plans.end() ? nullptr : &*found;
}

std::string reason_of(const SpeculationChoice& choice, SpeculationPolicy lengths) {
  const policy::SpeculationPlan& chosen = choice.plans[*choice.chosen];
  const bool decoupled = chosen.mode == SpeculationMode::decoupled;
  std::string text =
      fmt::format("{:.0f} tokens/s predicted ({})", chosen.tokens_per_second, how(chosen));
  if (const policy::SpeculationPlan* other = rival(choice, !decoupled))
    text += fmt::format(", against {:.0f} with {}", other->tokens_per_second, how(*other));
  if (chosen.mode == SpeculationMode::plain) {
    text +=
        drafts_always(lengths)
            ? fmt::format("; verifiers draft for themselves nevertheless (speculation.policy: {})",
                          name_of(lengths))
            : "; verifiers draft for themselves once batches are small enough";
  }
  return text;
}

bool computes(const ConfiguredDrafter& drafter) {
  return drafter.model != nullptr || drafter.head != nullptr;
}

/// Returns the fastest plan. But if it is decoupled, and no earlier run measured its drafter's
/// acceptance, a small lead may be wrong. Then returns, among hardly slower plans with the same
/// ranks, this plan included, the plan with the highest acceptance, measured or assumed.
const policy::SpeculationPlan& likeliest(std::span<const policy::SpeculationPlan> plans,
                                         const SpeculationChoice& choice) {
  const auto method = [&](const policy::SpeculationPlan& plan) {
    return std::ranges::find(choice.methods, plan.method, &policy::DraftMethod::name) -
           choice.methods.begin();
  };
  const policy::SpeculationPlan* best = &plans.front();
  if (best->mode != SpeculationMode::decoupled || choice.known[method(*best)]) return *best;
  for (const policy::SpeculationPlan& plan : plans) {
    if (plan.mode == best->mode && plan.tp == best->tp && plan.groups == best->groups &&
        plan.drafters == best->drafters &&
        plan.tokens_per_second >= kHardlySlower * plans.front().tokens_per_second &&
        choice.methods[method(plan)].acceptance > choice.methods[method(*best)].acceptance)
      best = &plan;
  }
  return *best;
}

/// Chooses the number of drafter ranks and the draft windows.
void choose_ranks(const Inputs& inputs, const policy::Placement& first, const ProfiledCosts& costs,
                  const TailGroups& tail, const DraftHistory& history, SpeculationChoice& choice) {
  const io::SpeculationSection& speculation = inputs.config.speculation;
  const std::optional<int> drafter_ranks = inputs.config.layout.drafters;
  choice.freed_window = {.tokens = speculation.max_length, .eager = speculation.max_length};
  choice.window = speculation.window ? protocol::DraftWindow{.tokens = *speculation.window}
                                     : choice.freed_window;
  choice.drafter_ranks = drafter_ranks.value_or(0);
  if (inputs.drafters.empty()) {
    if (!drafter_ranks)
      choice.reason = "there are no drafters (speculation.drafters, speculation.mode)";
    return;
  }
  if (const std::string why_not = no_plan(first, costs); !why_not.empty()) {
    if (drafter_ranks) return;
    choice.reason = "verifiers draft for themselves: " + why_not;
    if (speculation.mode != SpeculationMode::decoupled) return;
    throw UsageError(
        "speculation.mode: decoupled needs drafter ranks; set layout.drafters, because their "
        "number cannot be planned: " +
        why_not);
  }
  choice.requests = static_cast<double>(inputs.sizes.responses);
  // N-grams and suffix trees draft on drafter ranks only if the user asks for drafter ranks.
  const bool asked =
      drafter_ranks.value_or(0) > 0 || speculation.mode == SpeculationMode::decoupled;
  // The cost of sending features to a head on a drafter rank is not known. So drafter ranks use a
  // head only if the user asks for drafter ranks and there is no draft model.
  const bool models = std::ranges::any_of(
      inputs.drafters, [](const auto& drafter) { return drafter.model != nullptr; });
  for (const ConfiguredDrafter& drafter : inputs.drafters) {
    const bool ahead = drafter.head != nullptr ? asked && !models : asked || drafter.model;
    // The method chosen for drafter ranks stays their first drafter during the run. So the assumed
    // acceptance must be near the true one, which is lower for lookups than for models and heads.
    const double unknown = computes(drafter) ? policy::kUnknownAcceptance : policy::kUnknownLookup;
    choice.methods.push_back({drafter.name, history.rate(drafter.name, unknown), ahead});
    choice.known.push_back(history.knows(drafter.name));
  }
  const policy::PlanFacts facts = facts_of(inputs, first.ranks, costs, tail, choice);
  const std::optional<int> groups = settled_groups(inputs);
  choice.plans =
      policy::plan_speculation(facts, {.mode = {}, .groups = groups, .drafters = {}, .window = {}});
  const std::vector<policy::SpeculationPlan> settled = policy::plan_speculation(
      facts, {speculation.mode, groups, drafter_ranks, speculation.window});
  if (settled.empty()) {
    // If the user asks for impossible numbers, lay_out() throws later and names them.
    if (drafter_ranks || speculation.mode != SpeculationMode::decoupled) return;
    throw UsageError(fmt::format(
        "speculation.mode: decoupled needs a rank that drafts beside the verifier groups, but the "
        "job has {}{}; start it with more ranks",
        counted(facts.ranks, "rank"),
        groups ? fmt::format(" for {} ({})", counted(*groups, "group"),
                             inputs.config.layout.verifier_groups ? "layout.verifier_groups"
                                                                  : "layout.verifier_tp")
               : ""));
  }
  const policy::SpeculationPlan& chosen = likeliest(settled, choice);
  auto at = std::ranges::find_if(choice.plans, [&](const auto& plan) {
    return plan.settings == chosen.settings && plan.method == chosen.method;
  });
  // `plans` has only the best draft windows, so a plan with the user's own window may be missing.
  if (at == choice.plans.end()) {
    at = std::ranges::find_if(choice.plans, [&](const auto& plan) {
      return plan.tokens_per_second < chosen.tokens_per_second;
    });
    at = choice.plans.insert(at, chosen);
  }
  choice.chosen = static_cast<std::int32_t>(at - choice.plans.begin());
  choice.drafter_ranks = chosen.drafters;
  if (!drafter_ranks) {
    choice.reason = speculation.mode && *speculation.mode != SpeculationMode::decoupled
                        ? fmt::format("speculation.mode is {}", name_of(*speculation.mode))
                        : reason_of(choice, speculation.policy);
  }
  if (choice.drafter_ranks > 0 && !speculation.window) choice.window.tokens = chosen.draft_length;
}

/// Sorts drafters as choose_speculation() says. If no profile applies, keeps the configured order.
void order_drafters(const Inputs& inputs, int ranks, const ProfiledCosts& costs,
                    const DraftHistory& history, SpeculationChoice& choice) {
  choice.order.resize(inputs.drafters.size());
  std::iota(choice.order.begin(), choice.order.end(), 0);
  if (!costs.profile_holds()) return;
  const int groups =
      settled_groups(inputs).value_or((ranks - choice.drafter_ranks) / costs.conditions.tp);
  choice.load = ladder_load(inputs, std::max(1, groups));
  choice.ranked = policy::rank_methods(policy::build_ladders(*costs.profile, choice.load), history);
  const auto place = [&](std::int32_t index) {
    const ConfiguredDrafter& drafter = inputs.drafters[index];
    const bool first = choice.chosen && choice.drafter_ranks > 0 &&
                       drafter.name == choice.plans[*choice.chosen].method;
    const auto at = std::ranges::find(choice.ranked, drafter.name, &policy::RankedMethod::method);
    return std::tuple(!first, computes(drafter), at - choice.ranked.begin());
  };
  std::ranges::stable_sort(choice.order, {}, place);
}

}  // namespace

SpeculationChoice choose_speculation(const Inputs& inputs, const policy::Placement& first,
                                     const ProfiledCosts& costs, const TailGroups& tail,
                                     const DraftHistory& history) {
  SpeculationChoice choice;
  choose_ranks(inputs, first, costs, tail, history, choice);
  order_drafters(inputs, first.ranks, costs, history, choice);
  for (const std::int32_t drafter : choice.order)
    choice.acceptance.push_back(
        history.rate(inputs.drafters[drafter].name, policy::kUnknownAcceptance));
  return choice;
}

std::vector<PlannedDrafter> in_order(std::span<const ConfiguredDrafter> drafters,
                                     const SpeculationChoice& choice) {
  std::vector<PlannedDrafter> ordered;
  for (std::size_t i = 0; i < choice.order.size(); ++i) {
    const ConfiguredDrafter& drafter = drafters[choice.order[i]];
    ordered.push_back({drafter.setting, drafter.name, drafter.model.get(), drafter.head.get(),
                       choice.acceptance[i]});
  }
  return ordered;
}

policy::LadderLoad ladder_load(const Inputs& inputs, int groups) {
  const double batch = std::min<double>(inputs.config.engine.max_batch,
                                        static_cast<double>(inputs.sizes.responses) / groups);
  return {std::max(1.0, batch), mean_context(inputs), inputs.config.speculation.max_length};
}

std::string draft_ladder_text(const CostTable& costs, const policy::LadderLoad& load) {
  const std::string ladder = policy::ladder_text(costs, load);
  if (ladder.empty()) return "";
  return "draft ladder: for each share of accepted draft tokens (left), the speedup over plain "
         "decoding and, in brackets, the best draft length\n" +
         ladder;
}

std::string speculation_text(const Plan& plan) {
  const SpeculationChoice& choice = plan.speculation;
  if (choice.plans.empty()) return "";
  std::string text = fmt::format(
      "plans of speculation for {}, with predicted tokens/s over the whole run; *: chosen\n",
      counted(static_cast<std::int64_t>(choice.requests), "request"));
  const std::vector<policy::Ladder> ladders =
      policy::build_ladders(*plan.costs.profile, choice.load);
  for (std::size_t m = 0; m < choice.methods.size(); ++m) {
    const std::string& name = choice.methods[m].name;
    const double acceptance = choice.methods[m].acceptance;
    const auto ladder = std::ranges::find(ladders, name, &policy::Ladder::method);
    text += fmt::format(
        "  {}: {:.2f} of its draft tokens accepted, {}; at the start {:.2f} times as fast as plain "
        "decoding\n",
        plan.draft_servers.history && name == "suffix" ? kSuffixWithHistory : name, acceptance,
        choice.known[m] ? "as in earlier runs" : "an assumption", ladder->speedup(acceptance));
  }
  std::vector<bool> mode_shown(3);
  for (std::size_t i = 0; i < choice.plans.size(); ++i) {
    const policy::SpeculationPlan& possible = choice.plans[i];
    const auto mode = static_cast<std::size_t>(possible.mode);
    const bool is_chosen = choice.chosen == static_cast<std::int32_t>(i);
    if (i >= kShown && mode_shown[mode] && !is_chosen) continue;
    mode_shown[mode] = true;
    text += fmt::format("  {} {:>10.0f}  {}\n      {}\n      {}\n", is_chosen ? '*' : ' ',
                        possible.tokens_per_second, how(possible), possible.explanation,
                        as_arguments(possible.settings));
  }
  return text + draft_ladder_text(*plan.costs.profile, choice.load);
}

}  // namespace paceline::app
