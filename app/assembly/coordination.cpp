#include "app/assembly/coordination.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>

#include "app/assembly/chaos.hpp"
#include "app/assembly/drafters.hpp"
#include "io/run/run_replay.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"
#include "runtime/policy/schedule/balancing_scheduler.hpp"

namespace paceline::app {

std::vector<Trajectory> work_list(const Setup& setup, std::span<const RequestId> finished,
                                  std::span<Trajectory> partial) {
  std::vector<std::uint32_t> order(setup.prompts.prompts.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  if (setup.config.prompts.shuffle) {
    std::mt19937_64 random(setup.config.sampling.seed);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  }
  std::map<RequestId, Trajectory*> begun;
  for (Trajectory& t : partial) begun.emplace(t.id, &t);
  std::vector<Trajectory> work;
  for (const std::uint32_t prompt : order) {
    for (std::int32_t sample = 0; sample < setup.config.prompts.samples; ++sample) {
      const RequestId id{prompt, static_cast<std::uint32_t>(sample)};
      if (std::binary_search(finished.begin(), finished.end(), id)) continue;
      Trajectory t;
      if (const auto it = begun.find(id); it != begun.end()) t = std::move(*it->second);
      t.id = id;
      t.finish_reason = FinishReason::partial;
      t.reward = NAN;
      t.weight_version = setup.config.model.weight_version;
      work.push_back(std::move(t));
    }
  }
  return work;
}

namespace {

policy::TailOptions tail_options(const Setup& setup) {
  policy::TailOptions options;
  if (tail_methods(setup).empty() || !setup.profile_holds()) return options;
  options.home = setup.layout.placement;
  const bool ahead = setup.layout.drafters() > 0;
  options.mode = ahead ? SpeculationMode::decoupled : SpeculationMode::coupled;
  for (const speculation::RosterEntry& entry : drafter_roster(setup, &*setup.profile)) {
    const policy::TailMethod method{entry.place, entry.costs.value(), entry.acceptance};
    const bool tail = entry.kind == speculation::DrafterKind::tail;
    (tail ? options.methods : options.raced).push_back(method);
    if (!options.first && (ahead || setup.drafters[entry.place].model != nullptr))
      options.first = method;
  }
  options.window = draft_window(setup.config.speculation);
  options.longest_draft = setup.config.speculation.max_length;
  options.max_batch = setup.config.engine.max_batch;
  return options;
}

}  // namespace

std::unique_ptr<policy::Scheduler> make_scheduler(const Setup& setup) {
  const io::ScheduleSection& schedule = setup.config.schedule;
  const bool is_static = schedule.policy == io::SchedulePolicy::group;
  return shuffled(setup, std::make_unique<policy::BalancingScheduler>(policy::BalancingOptions{
                             .terms = lease_terms(setup),
                             .rebalance = schedule.rebalance && !is_static,
                             .shares = !is_static,
                             .racing = {.methods = races(setup) ? race_methods(setup) : 0},
                             .tail = tail_options(setup)}));
}

ResponseTokens known_lengths(const Setup& setup) {
  const std::optional<std::string>& directory = setup.config.schedule.lengths;
  if (!directory) return {};
  const RecordedRun run = io::read_recorded_run(*directory);
  std::map<std::string, std::size_t> recorded;  // by uid
  for (std::size_t p = 0; p < run.prompts.size(); ++p) recorded[run.prompts[p].uid] = p;
  ResponseTokens lengths;
  for (std::uint32_t p = 0; p < setup.prompts.prompts.size(); ++p) {
    const auto at = recorded.find(setup.prompts.prompts[p].uid);
    if (at == recorded.end()) continue;
    const std::vector<std::int32_t>& samples = run.lengths[at->second];
    for (std::uint32_t s = 0; s < samples.size(); ++s)
      lengths[{p, s}] = static_cast<std::uint32_t>(samples[s]);
  }
  if (lengths.empty())
    throw UsageError("schedule.lengths: the run in " + *directory +
                     " has none of these prompts (they are known by uid)");
  return lengths;
}

std::unique_ptr<policy::RequestOrder> make_order(const Setup& setup, ResponseTokens lengths) {
  const auto max_tokens = static_cast<std::uint32_t>(setup.config.sampling.max_tokens);
  const std::span<const Prompt> prompts = setup.prompts.prompts;
  switch (setup.config.schedule.policy) {
    case io::SchedulePolicy::context:
      return std::make_unique<policy::ContextAware>(max_tokens, setup.config.sampling.seed,
                                                    prompts);
    case io::SchedulePolicy::no_context:
      return std::make_unique<policy::QueueAgain>();
    case io::SchedulePolicy::oracle:
      return std::make_unique<policy::LongestFirst>(std::move(lengths), max_tokens, prompts);
    case io::SchedulePolicy::group:
      return std::make_unique<policy::GroupStatic>();
    case io::SchedulePolicy::fcfs:
      break;
  }
  return std::make_unique<policy::FirstCome>();
}

policy::LeaseTerms lease_terms(const Setup& setup) {
  const io::EngineSection& engine = setup.config.engine;
  const Auto<std::int32_t> chunk = setup.config.schedule.chunk;
  const bool by_share = !chunk && !setup.kv.holds_batch;
  const bool grows = chunk == io::ScheduleSection::kGrow;
  return {.chunk = by_share ? policy::kLeastChunk
                   : grows  ? 0
                            : chunk.value_or(0),
          .chunk_share = by_share ? policy::kChunkShare : 0,
          .growth = grows ? engine.kv_block : 0,
          .max_tokens = setup.config.sampling.max_tokens,
          .context = setup.model.max_position,
          .kv_block = engine.kv_block};
}

std::string chunk_text(const Setup& setup) {
  const policy::LeaseTerms terms = lease_terms(setup);
  const bool set = setup.config.schedule.chunk.has_value();
  if (terms.chunk_share > 0) {
    return fmt::format(
        "requests run in chunks of an eighth of what they have, {} at least: KV memory does not "
        "hold a "
        "full batch at its longest (override: schedule.chunk)",
        counted(terms.chunk, "token"));
  }
  const std::string why = set ? " (schedule.chunk)" : " (override: schedule.chunk)";
  return terms.chunk > 0
             ? fmt::format("requests run in chunks of {}{}", counted(terms.chunk, "token"), why)
             : "requests run without chunks" + why;
}

roles::CoordinatorOptions coordinator_options(const Setup& setup) {
  return {.seed = setup.config.sampling.seed, .terms = lease_terms(setup)};
}

}  // namespace paceline::app
