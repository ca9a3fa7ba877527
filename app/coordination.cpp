#include "app/coordination.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>

#include "app/drafters.hpp"
#include "runtime/policy/balancing_scheduler.hpp"
#include "runtime/policy/random_scheduler.hpp"

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

std::unique_ptr<policy::Scheduler> make_scheduler(const Setup& setup) {
  const io::ScheduleSection& schedule = setup.config.schedule;
  const auto methods = static_cast<int>(drafter_names(setup).size());
  auto balancing = std::make_unique<policy::BalancingScheduler>(
      schedule.rebalance,
      policy::RacingOptions{races(setup) ? methods : 0, setup.config.speculation.race_batch});
  if (!schedule.shuffle && !schedule.shuffle_roles && !schedule.shuffle_races) return balancing;
  return std::make_unique<policy::RandomScheduler>(
      std::move(balancing), setup.layout.placement,
      policy::Chance{.moves = schedule.shuffle,
                     .roles = schedule.shuffle_roles,
                     .race_methods = schedule.shuffle_races ? std::max(1, methods) : 0,
                     .seed = schedule.shuffle_seed});
}

roles::CoordinatorOptions coordinator_options(const Setup& setup) {
  return {.seed = setup.config.sampling.seed, .max_tokens = setup.config.sampling.max_tokens};
}

}  // namespace paceline::app
