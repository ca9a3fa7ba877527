// What the policies of draft lengths take to decide: bench_speculation --decisions.
#include <cstdio>
#include <vector>

#include "runtime/core/quantile.hpp"
#include "runtime/policy/length/make_draft_length.hpp"
#include "tests/bench/machine.hpp"
#include "tests/bench/speculation_setup.hpp"
#include "tests/runtime/policy/stop_network_tensors.hpp"

namespace paceline::bench {
namespace {

constexpr int kSteps = 4000;
constexpr double kAcceptance = 0.8;

/// On which drafts pay up to batches of 16 or so, so that what is decided differs by batch.
CostTable made_up_costs() {
  CostTable costs;
  std::vector<CostCurve::Point> steps;
  for (double rows = 1; rows < 4096; rows *= 1.4) steps.push_back({rows, 1e-3 * (1 + rows / 64)});
  costs.decode = CostCurve(steps);
  DrafterCosts drafter;
  drafter.first = drafter.round = CostCurve({{1, 1e-4}, {256, 1e-3}});
  costs.drafters.push_back(drafter);
  return costs;
}

/// Microseconds a step, medians over the steps of a run.
double decide(SpeculationPolicy name, int batch, int max_length) {
  const CostTable costs = made_up_costs();
  const auto policy = policy::make_draft_length(name, costs, max_length, 1);
  const std::vector<double> acceptance(batch, kAcceptance);
  const std::vector<int> longest(batch, max_length);
  std::vector<int> lengths(batch);
  std::vector<double> values;
  std::vector<int> offsets;
  std::vector<std::uint8_t> keep;
  policy::DraftQuery query;
  query.requests = batch;
  query.acceptance = acceptance;
  query.longest_draft = longest;
  std::vector<double> times;
  for (int step = 0; step < kSteps; ++step) {
    double begin = now();
    lengths.assign(batch, 0);
    if (policy->considers(query)) policy->choose(query, lengths);
    double seconds = now() - begin;
    values.clear();
    offsets.assign(1, 0);
    for (const int length : lengths) {
      double value = 1;
      for (int i = 0; i < length; ++i) values.push_back(value *= kAcceptance);
      offsets.push_back(static_cast<int>(values.size()));
    }
    keep.assign(values.size(), 0);
    policy::StepOutcome outcome;
    outcome.committed = batch;
    begin = now();
    if (!values.empty()) policy->select(query, {values, offsets}, keep);
    seconds += now() - begin;
    for (std::size_t i = 0; i < keep.size(); ++i) outcome.draft_rows += keep[i];
    outcome.step_seconds =
        costs.step_seconds({static_cast<double>(batch), static_cast<double>(outcome.draft_rows)});
    begin = now();
    policy->observe(outcome);
    times.push_back(seconds + now() - begin);
  }
  return 1e6 * quantile(times, 0.5);
}

/// Microseconds that RADAR's network takes for a level of a draft, the median.
double decide_stop() {
  const policy::StopNetwork network{policy::StopNetworkTensors()};
  policy::StopNetwork::Confidences level;
  std::vector<double> times;
  float sum = 0;  // so that nothing is left out
  for (int draft = 0; draft < kSteps; ++draft) {
    policy::StopNetwork::Memory memory;
    for (int i = 0; i < policy::kMostExpansions; ++i) {
      level.fill(-0.1F * static_cast<float>(draft % 7 + i));
      const double begin = now();
      sum += network.stop_probability(memory, level);
      times.push_back(now() - begin);
    }
  }
  return sum > 0 ? 1e6 * quantile(times, 0.5) : 0;
}

}  // namespace

void bench_decisions(const SpeculationOptions& options) {
  std::printf("microseconds a step to decide on drafts of up to %d tokens\n%-16s",
              options.max_length, "batch");
  for (const int batch : options.batches) std::printf("%8d", batch);
  for (const SpeculationPolicy policy : kSpeculationPolicies) {
    std::printf("\n%-16s", name_of(policy));
    for (const int batch : options.batches)
      std::printf("%8.1f", decide(policy, batch, options.max_length));
  }
  std::printf("\n%-16s%8.1f us a level of a draft\n", "RADAR's network", decide_stop());
}

}  // namespace paceline::bench
