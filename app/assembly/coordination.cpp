#include "app/assembly/coordination.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "app/assembly/chaos.hpp"
#include "app/assembly/drafters.hpp"
#include "app/assembly/dynamic_sampling.hpp"
#include "io/run/run_replay.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"
#include "runtime/policy/schedule/balancing_scheduler.hpp"

namespace paceline::app {

std::vector<Trajectory> work_list(const Inputs& inputs, std::span<const RequestId> finished,
                                  std::span<Trajectory> partial) {
  std::map<RequestId, Trajectory*> begun;
  for (Trajectory& t : partial) begun.emplace(t.id, &t);
  std::vector<Trajectory> work;
  for (const std::uint32_t prompt : prompt_order(inputs)) {
    const std::uint32_t samples = inputs.samples_of(inputs.prompts.prompts[prompt]);
    for (std::uint32_t sample = 0; sample < samples; ++sample) {
      const RequestId id{prompt, sample};
      if (std::binary_search(finished.begin(), finished.end(), id)) continue;
      Trajectory t;
      if (const auto it = begun.find(id); it != begun.end()) t = std::move(*it->second);
      t.id = id;
      t.finish_reason = FinishReason::partial;
      t.reward = NAN;
      t.weight_version = inputs.config.model.weight_version;
      work.push_back(std::move(t));
    }
  }
  return work;
}

namespace {

/// Estimated number of draft tokens that a step verifies for each request. The scheduler compares
/// the speeds of groups by this estimate. In simulations (specactor-lognormal.yaml on 32 GPUs),
/// steps verified 1.2 to 2 draft tokens for each request when some groups were ahead of others.
constexpr double kDrafted = 2;

policy::TailOptions tail_options(const Inputs& inputs, const Plan& plan) {
  policy::TailOptions options;
  if (plan.best_of_n.tail_methods.empty() || !plan.costs.profile_holds()) return options;
  options.home = plan.layout.placement;
  const bool ahead = plan.layout.drafters() > 0;
  options.mode = ahead ? SpeculationMode::decoupled : SpeculationMode::coupled;
  for (const speculation::RosterEntry& entry : drafter_roster(plan, &*plan.costs.profile)) {
    const policy::TailMethod method{entry.place, entry.costs.value(), entry.acceptance};
    const bool tail = entry.kind == speculation::DrafterKind::tail;
    (tail ? options.methods : options.raced).push_back(method);
    if (!options.first && (ahead || plan.drafters[entry.place].model != nullptr))
      options.first = method;
  }
  options.window = plan.speculation.window.tokens;
  options.longest_draft = inputs.config.speculation.max_length;
  options.max_batch = inputs.config.engine.max_batch;
  return options;
}

}  // namespace

std::unique_ptr<policy::Scheduler> make_scheduler(const Inputs& inputs, const Machine& machine,
                                                  const Plan& plan) {
  const io::ScheduleSection& schedule = inputs.config.schedule;
  const bool is_static = schedule.policy == io::SchedulePolicy::group;
  const SpeculationChoice& choice = plan.speculation;
  const bool drafts = choice.chosen && choice.plans[*choice.chosen].mode != SpeculationMode::plain;
  return shuffled(inputs.config.test, plan,
                  std::make_unique<policy::BalancingScheduler>(policy::BalancingOptions{
                      .terms = plan.leases,
                      .rebalance = schedule.rebalance && !is_static,
                      .drafted = drafts ? kDrafted : 0,
                      .shares = !is_static,
                      .racing = {.methods = plan.best_of_n.races ? plan.best_of_n.race_methods : 0},
                      .tail = tail_options(inputs, plan),
                      .growth = growth_options(inputs, machine, plan)}));
}

ResponseTokens known_lengths(const Inputs& inputs) {
  const std::optional<std::string>& directory = inputs.config.schedule.lengths;
  if (!directory) return {};
  const RecordedRun run = io::read_recorded_run(*directory);
  std::map<std::string, std::size_t> recorded;  // indices in run.prompts, by uid
  for (std::size_t p = 0; p < run.prompts.size(); ++p) recorded[run.prompts[p].uid] = p;
  ResponseTokens lengths;
  for (std::uint32_t p = 0; p < inputs.prompts.prompts.size(); ++p) {
    const auto at = recorded.find(inputs.prompts.prompts[p].uid);
    if (at == recorded.end()) continue;
    const std::vector<std::int32_t>& samples = run.lengths[at->second];
    for (std::uint32_t s = 0; s < samples.size(); ++s)
      lengths[{p, s}] = static_cast<std::uint32_t>(samples[s]);
  }
  if (lengths.empty())
    throw UsageError("schedule.lengths: the run in " + *directory +
                     " has none of this run's prompts (prompts are matched by uid)");
  return lengths;
}

std::unique_ptr<policy::RequestOrder> make_order(const Inputs& inputs, ResponseTokens lengths,
                                                 int instance) {
  const auto max_tokens = static_cast<std::uint32_t>(inputs.config.sampling.max_tokens);
  const std::span<const Prompt> prompts = inputs.prompts.prompts;
  switch (inputs.config.schedule.policy) {
    case io::SchedulePolicy::context:
      return std::make_unique<policy::ContextAware>(max_tokens, inputs.config.sampling.seed,
                                                    prompts);
    case io::SchedulePolicy::no_context:
      return std::make_unique<policy::QueueAgain>();
    case io::SchedulePolicy::oracle:
      return std::make_unique<policy::LongestFirst>(std::move(lengths), max_tokens, prompts);
    case io::SchedulePolicy::group:
      return std::make_unique<policy::GroupStatic>(instance);
    case io::SchedulePolicy::fcfs:
      return std::make_unique<policy::FirstCome>();
  }
  throw std::logic_error("an order of requests without a name");
}

policy::LeaseTerms plan_leases(const Inputs& inputs, const policy::KvPlan& kv) {
  const io::EngineSection& engine = inputs.config.engine;
  const Auto<std::int32_t> chunk = inputs.config.schedule.chunk;
  const bool by_share = !chunk && !kv.holds_batch;
  const bool grows = chunk == io::ScheduleSection::kGrow;
  return {.chunk = by_share ? policy::kLeastChunk
                   : grows  ? 0
                            : chunk.value_or(0),
          .chunk_share = by_share ? policy::kChunkShare : 0,
          .growth = grows ? engine.kv_block : 0,
          .max_tokens = inputs.config.sampling.max_tokens,
          .context = inputs.target.config.max_position,
          .kv_block = engine.kv_block};
}

std::string chunk_text(const Inputs& inputs, const Plan& plan) {
  const policy::LeaseTerms& terms = plan.leases;
  const bool set = inputs.config.schedule.chunk.has_value();
  if (terms.chunk_share > 0) {
    return fmt::format(
        "requests run in chunks of an eighth of their tokens, at least {}, because KV memory does "
        "not hold a full batch of longest sequences (override: schedule.chunk)",
        counted(terms.chunk, "token"));
  }
  const std::string why = set ? " (schedule.chunk)" : " (override: schedule.chunk)";
  return terms.chunk > 0
             ? fmt::format("requests run in chunks of {}{}", counted(terms.chunk, "token"), why)
             : (terms.growth > 0 ? "requests run without chunks, and reserve KV block by block"
                                 : "requests run without chunks") +
                   why;
}

roles::CoordinatorOptions coordinator_options(const Inputs& inputs, const Plan& plan) {
  return {.seed = inputs.config.sampling.seed, .terms = plan.leases};
}

}  // namespace paceline::app
