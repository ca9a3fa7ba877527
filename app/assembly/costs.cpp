#include "app/assembly/costs.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "app/terminal/terminal.hpp"
#include "io/config/cost_profile.hpp"
#include "runtime/core/stopwatch.hpp"
#include "runtime/costs/transfer_measurement.hpp"
#include "runtime/fabric/rendezvous.hpp"
#include "runtime/protocol/participant.hpp"
#include "runtime/roles/group.hpp"

namespace paceline::app {
namespace {

/// Share of the measuring time that goes to KV transfers if there are several groups.
constexpr double kTransferShare = 0.1;

/// Measures steps and drafts of the rank's group. Only the leader measures; members follow it.
/// Collective over all ranks.
CostMeasurement measure_steps(const MeasuringRank& rank, const MeasurementBudget& budget) {
  const Inputs& inputs = rank.inputs;
  const Plan& plan = rank.plan;
  const int me = rank.mpi.rank();
  const policy::Placement& placement = plan.layout.placement;
  const Role role = placement.role(me);
  const auto rendezvous = fabric::Rendezvous::make(role == Role::verifier);
  if (role != Role::verifier && role != Role::verifier_member) return {};
  const auto [leader, tp] = placement.groups[placement.group(me)];
  if (role == Role::verifier_member) {
    roles::Member member(rank.mailbox, *rank.compute.executor, *rank.share, leader,
                         placement.epoch);
    protocol::drive(member, rank.mailbox, rank.clock, [] { return true; });
    return {};
  }
  std::vector<int> members;
  for (int m = 1; m < tp; ++m) members.push_back(leader + m);
  roles::Group group(rank.mailbox, *rank.compute.executor, *rank.share, members, placement.epoch);
  const io::SpeculationSection& speculation = inputs.config.speculation;
  MeasuredEngine engine{group,
                        executor_limits(inputs, plan),
                        inputs.target.config.vocab,
                        {},
                        speculation.max_length,
                        speculation.paths.value_or(1),
                        inputs.owners(tp)};
  for (const auto& [d, drafter] : rank.compute.drafters)
    engine.drafters.push_back({plan.drafters[d].name, *drafter});
  if (rendezvous != nullptr) {
    engine.meet = [&, random = std::mt19937(me)](std::uint64_t place, double step,
                                                 double patience) mutable {
      rendezvous->come(place, patience);
      // Without a random wait, ranks would read KV at the same moments in every step, unlike in a
      // run. The wait is busy, because a sleep might take longer than a whole step.
      const double until = steady_seconds() + std::uniform_real_distribution(0.0, step)(random);
      while (steady_seconds() < until) {
      }
    };
  }
  CostMeasurement measured = measure_costs(engine, rank.clock, budget);
  group.finish({});
  return measured;
}

/// Measures KV transfers between pairs of groups; nullopt: there is only one group, or a transfer
/// failed. All ranks get the same costs. `seconds`: this rank's proposal for the measuring time.
std::optional<TransferCosts> measure_transfers_of(const MeasuringRank& rank, double seconds) {
  const policy::Placement& placement = rank.plan.layout.placement;
  const auto groups = static_cast<int>(placement.groups.size());
  if (groups < 2) return std::nullopt;
  const int own = placement.group(rank.mpi.rank());
  const int peer = own ^ 1;
  TransferEnd end;
  end.blocks = rank.plan.memory.kv.blocks;
  const bool divided = rank.inputs.attention() == AttentionLayout::data;
  const bool leads = placement.role(rank.mpi.rank()) == Role::verifier;
  // If `layout.attention` is `data`, a request's KV is on one rank, so only leaders measure.
  if (rank.share != nullptr && peer < groups && (leads || !divided)) {
    end.share = rank.share;
    end.block_bytes = static_cast<double>(rank.compute.executor->kv_memory().shape.block_bytes());
    end.peer = placement.groups[peer];
    if (divided) {
      end.owner = {0, placement.groups[own].tp};
      end.peer.tp = 1;
    }
    end.receives = own < peer;
  }
  const auto sum = [&](std::span<double> values) {
    const auto all = rank.mpi.all_gather(std::as_bytes(values));
    std::vector<double> theirs(values.size());
    std::fill(values.begin(), values.end(), 0.0);
    for (const std::vector<std::byte>& bytes : all) {
      std::memcpy(theirs.data(), bytes.data(), bytes.size());
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += theirs[i];
    }
  };
  rank.mpi.barrier();  // sleeps, because spinning would slow down ranks that are not done yet
  // All ranks use the mean of `seconds` over the leaders that receive KV in this measurement.
  const bool knows = end.receives && placement.role(rank.mpi.rank()) == Role::verifier;
  std::vector<double> budget{knows ? seconds : 0, knows ? 1.0 : 0};
  sum(budget);
  return measure_transfers(end, rank.mailbox, rank.clock, budget[0] / std::max(1.0, budget[1]),
                           sum);
}

}  // namespace

CostMeasurement measure(const MeasuringRank& rank, const MeasurementBudget& budget) {
  MeasurementBudget of_steps = budget;
  if (rank.plan.layout.groups() > 1) {
    of_steps.seconds *= 1 - kTransferShare;
    of_steps.share *= 1 - kTransferShare;
  }
  const double begin = rank.clock.now();
  CostMeasurement measured = measure_steps(rank, of_steps);
  measured.table.transfer =
      measure_transfers_of(rank, measured.seconds * kTransferShare / (1 - kTransferShare));
  measured.table.conditions = rank.plan.costs.conditions;
  for (DrafterCosts& costs : measured.table.drafters) {
    for (const ConfiguredDrafter& drafter : rank.inputs.drafters)
      if (drafter.name == costs.name) costs.model = shape_text(drafter, rank.inputs.target.compute);
  }
  const policy::Placement& placement = rank.plan.layout.placement;
  if (const int group = placement.group(rank.mpi.rank()); group >= 0)
    measured.table.conditions.tp = placement.groups[group].tp;
  measured.seconds = rank.clock.now() - begin;
  return measured;
}

bool wants_costs(const Inputs& inputs, const Plan& plan) {
  const bool drafts = !plan.drafters.empty() && reads_costs(inputs.config.speculation.policy);
  const io::ScheduleSection& schedule = inputs.config.schedule;
  return drafts || (plan.layout.groups() > 1 &&
                    (schedule.rebalance || inputs.config.test.shuffles(io::Shuffle::moves)));
}

namespace {

/// The costs of this rank's group, from the profile if it applies, otherwise measured.
CostTable own_costs(const MeasuringRank& rank, std::size_t responses) {
  const Inputs& inputs = rank.inputs;
  const Plan& plan = rank.plan;
  // Steps of each group, if batches are full and responses reach half of their limit on average.
  MeasurementBudget budget;
  budget.steps_foreseen = static_cast<double>(responses) * inputs.sizes.mean_max_tokens / 2 /
                          plan.layout.groups() / inputs.config.engine.max_batch;
  if (plan.costs.profile_holds()) {
    CostTable table = *plan.costs.profile;
    if (!table.transfer)  // for example because the profile was measured with a single group
      table.transfer = measure_transfers_of(rank, kTransferShare * budget.seconds);
    return table;
  }
  const CostMeasurement measured = measure(rank, budget);
  if (rank.mpi.rank() == 0) {
    say("  costs of steps and drafts: {} measurements in {:.2f} s", measured.measurements,
        measured.seconds);
    if (const auto& transfer = measured.table.transfer)
      say("  KV moves between groups at {:.2f} GB/s after a delay of {:.2f} ms",
          1e-9 * transfer->bandwidth, 1e3 * transfer->latency);
  }
  return measured.table;
}

}  // namespace

CostsByDegree costs_of_run(const MeasuringRank& rank, std::size_t responses) {
  if (!wants_costs(rank.inputs, rank.plan)) return {};
  const policy::Placement& placement = rank.plan.layout.placement;
  const int me = rank.mpi.rank();
  const CostTable own = own_costs(rank, responses);
  CostsByDegree costs;
  if (const int group = placement.group(me); group >= 0) costs[placement.groups[group].tp] = own;
  for (const auto& [tp, table] : rank.plan.tail_groups.costs) {
    costs[tp] = table;
    if (!table.transfer) costs[tp].transfer = own.transfer;
  }
  if (!rank.inputs.config.test.shuffles(io::Shuffle::roles)) return costs;
  // Any rank may come to lead a group of any degree, so all ranks get all tables.
  const std::string text = placement.role(me) == Role::verifier ? io::cost_profile_text(own) : "";
  const auto all = rank.mpi.all_gather(std::as_bytes(std::span(text)));
  for (const policy::GroupRanks& group : placement.groups) {
    const std::vector<std::byte>& theirs = all[group.leader];
    costs[group.tp] = io::parse_cost_profile(
        {reinterpret_cast<const char*>(theirs.data()), theirs.size()}, "costs");
  }
  return costs;
}

const CostTable& of_degree(const CostsByDegree& costs, int tp) {
  static const CostTable none;
  return costs.contains(tp) ? costs.at(tp) : none;
}

}  // namespace paceline::app
