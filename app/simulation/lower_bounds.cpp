#include "app/simulation/lower_bounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <vector>

#include "runtime/policy/plan/speculation_speed.hpp"

namespace paceline::app {
namespace {

/// Bounds::longest() computes times for this many requests, those with the most sampled tokens.
/// Another request is slower only if it has a longer context, longer waits or a lower acceptance.
constexpr std::size_t kLongest = 256;
/// Largest number of groups per drafter rank that Bounds::work() tries.
constexpr int kMostGroups = 16;

/// Positions attended to, summed over a request's sampled tokens. `before`: tokens of the prompt.
double positions_of(const sim::ModelledRequest& request, double before) {
  double positions = 0;
  double begin = 0;
  const auto add = [&](double tokens) { positions += tokens * (before + begin + tokens / 2); };
  for (const sim::ModelledTurn& turn : request.turns) {
    add(turn.end - begin);
    begin = turn.end + turn.given;
  }
  if (request.turns.empty()) add(request.length);
  return positions;
}

class Bounds {
 public:
  explicit Bounds(const SimulationSetup& simulation)
      : simulation_(simulation), alone_costs_(simulation.costs) {
    if (simulation.instance) alone_costs_ = {{1, simulation.instance->table(1)}};
    for (const auto& samples : simulation.workload->requests) {
      const std::size_t prompt = &samples - simulation.workload->requests.data();
      for (const sim::ModelledRequest& request : samples) {
        const double tokens = request.sampled();
        const auto before = static_cast<double>(simulation.workload->prompts[prompt].tokens.size());
        tokens_ += tokens;
        positions_ += positions_of(request, before);
        alone_.push_back({&request, before});
        longest_wait_ = std::max(longest_wait_, request.waits());
      }
    }
    for (const PlannedDrafter& drafter : simulation.plan.drafters) {
      const auto method = std::find_if(methods().begin(), methods().end(),
                                       [&](const auto& m) { return m.name == drafter.name; });
      const auto& all = simulation.plan.costs.profile->drafters;
      const auto costs = std::find_if(all.begin(), all.end(),
                                      [&](const auto& c) { return c.name == drafter.name; });
      if (method != methods().end() && costs != all.end())
        drafters_.push_back({&*costs, static_cast<std::size_t>(method - methods().begin())});
    }
  }

  [[nodiscard]] double longest() {
    const std::size_t count = std::min(kLongest, alone_.size());
    std::partial_sort(
        alone_.begin(), alone_.begin() + static_cast<std::ptrdiff_t>(count), alone_.end(),
        [](const Alone& a, const Alone& b) { return a.request->sampled() > b.request->sampled(); });
    double seconds = longest_wait_;
    for (const Alone& alone : std::span(alone_).first(count)) {
      const double context = positions_of(*alone.request, alone.prompt) / alone.request->sampled();
      double best = 0;
      for (const auto& [tp, table] : alone_costs_) {
        const auto rate = [&](std::size_t method) {
          return methods()[method].with_history(alone.request->acceptance[method]);
        };
        best = std::max(best, pace(table, 1, context, 1, rate));
      }
      seconds = std::max(seconds, alone.request->sampled() / best + alone.request->waits());
    }
    return seconds;
  }

  [[nodiscard]] double work() const {
    const double context = positions_ / tokens_;
    const auto rate = [&](std::size_t method) {
      const sim::MethodAcceptance& acceptance = methods()[method];
      return acceptance.with_history(acceptance.mean);
    };
    double best = 0;  // tokens per second and rank
    for (const auto& [tp, table] : simulation_.costs) {
      const int most = simulation_.inputs.config.engine.max_batch;
      for (int at = 1; at < 2 * most; at *= 2) {
        const int b = std::min(at, most);
        best = std::max(best, b * pace(table, b, context, 0, rate) / tp);
        for (int groups = 1; groups <= kMostGroups; groups *= 2)
          best = std::max(best, b * pace(table, b, context, groups, rate) / (tp + 1.0 / groups));
      }
    }
    return tokens_ / (best * static_cast<double>(simulation_.machine.ranks.size()));
  }

 private:
  struct Alone {
    const sim::ModelledRequest* request = nullptr;
    double prompt = 0;  ///< tokens
  };
  struct Drafter {
    const DrafterCosts* costs = nullptr;
    std::size_t method = 0;
  };

  [[nodiscard]] const std::vector<sim::MethodAcceptance>& methods() const {
    return simulation_.workload->acceptance.methods;
  }

  /// Highest speed, in tokens a second, of a request in a group that runs `b` requests. `groups`:
  /// number of groups that a drafter rank serves; 0: no drafter rank. `rate`: acceptance by method.
  template <class Rate>
  [[nodiscard]] double pace(const CostTable& table, double b, double context, int groups,
                            const Rate& rate) const {
    double best = policy::plain_speed(table, context, b).tokens_per_second;
    for (const Drafter& drafter : drafters_) {
      const policy::SpeculationCosts costs{table, *drafter.costs, context,
                                           simulation_.inputs.config.engine.max_batch};
      const double p = rate(drafter.method);
      for (int w = 1; w <= simulation_.inputs.config.speculation.max_length; ++w) {
        best = std::max(best, policy::coupled_speed(costs, p, w, b).tokens_per_second);
        if (groups > 0) {
          best =
              std::max(best, policy::decoupled_speed(costs, p, w, b, b * groups).tokens_per_second);
        }
      }
      const bool eager = groups > 0 && b * groups <= costs.max_batch;
      // Lookup drafters (n-grams, suffix trees), whose catch_up is empty, have no second choices.
      if (!eager || drafter.costs->catch_up.empty()) continue;
      best = std::max(best, foreseen(costs, p, methods()[drafter.method].second_choice, b, groups));
    }
    return best;
  }

  /// Like pace(), for an eager drafter rank, which sends each drafted token at once. A step
  /// verifies a chain that was drafted during the previous step. At each token of the chain, a
  /// branch begins with the drafter's second choice. Rows of branches are assumed to cost no time.
  /// If the second choice at the chain's first wrong token is wrong too, the next step has no
  /// draft. `p`: acceptance. `second`: the second choice's acceptance if the first is wrong.
  [[nodiscard]] double foreseen(const policy::SpeculationCosts& costs, double p, double second,
                                double b, int groups) const {
    const double call = costs.window_seconds(1, b * groups);
    const double returns = p + (1 - p) * second;
    double best = 0;
    double drafted = 0;  // sum over k of P(first k tokens agree with the chain or with a branch)
    for (int w = 1; w <= simulation_.inputs.config.speculation.max_length; ++w) {
      drafted += std::pow(p, w) + w * std::pow(p, w - 1) * (1 - p) * second;
      const double step = costs.verify_seconds(w + 1, b);
      if (w > 1 && w * call > step) break;
      const double whole = std::pow(p, w + 1);  // P(the chain and the token after it are right)
      const double falls = (1 - whole) * (1 - second);
      const double ahead = returns > 0 ? returns / (returns + falls) : 0;
      best = std::max(best, (1 + ahead * drafted) / step);
    }
    return best;
  }

  const SimulationSetup& simulation_;
  /// Costs, by tensor-parallel degree, while only one group or one rank of an instance has work.
  std::map<int, CostTable> alone_costs_;
  std::vector<Alone> alone_;
  std::vector<Drafter> drafters_;
  double longest_wait_ = 0;  ///< largest sum of a request's waits for answers, in seconds
  double tokens_ = 0;        ///< sampled tokens of all requests
  double positions_ = 0;     ///< positions that these tokens attend to, summed over the tokens
};

}  // namespace

LowerBounds lower_bounds(const SimulationSetup& simulation) {
  Bounds bounds(simulation);
  return {bounds.longest(), bounds.work()};
}

std::string lower_bounds_text(const LowerBounds& bounds, double seconds) {
  return fmt::format(
      "lower bounds: {:.1f} s for the slowest response alone, {:.1f} s for all work on all ranks; "
      "the rollout takes {:.2f} times the larger",
      bounds.longest, bounds.work, seconds / bounds.larger());
}

}  // namespace paceline::app
