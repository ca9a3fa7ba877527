#include "app/simulation/simulated_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "runtime/model/sharding.hpp"
#include "runtime/sim/drafter.hpp"
#include "runtime/sim/modelled_head.hpp"

namespace paceline::app {

kernels::KvShape kv_shape(const Inputs& inputs, int tp, bool looked_at) {
  if (looked_at)
    return {1, std::max(inputs.target.config.kv_heads / tp, 1), 1, inputs.config.engine.kv_block,
            DType::f32};
  return model::kv_shape(inputs.target.config, tp, inputs.config.engine.kv_block,
                         inputs.target.compute, inputs.config.sampling.keep_routing);
}

SimulatedRank::SimulatedRank(const SimulatedSurroundings& around, int rank,
                             TrajectorySink& trajectories, TelemetrySink& telemetry)
    : around_(around), rank_(rank), trajectories_(trajectories), telemetry_(telemetry) {
  const Inputs& inputs = around_.simulation.inputs;
  const Plan& plan = around_.simulation.plan;
  actor_ = around_.world.add(*this, around_.simulation.machine.ranks[rank].node);
  const Address address{rank, Address::Port::role};
  mailbox_ = &around_.post.open(address);
  around_.post.belongs(address, actor_);
  blocks_ = &around_.blocks.open(rank, actor_);
  if (inputs.config.converses()) {
    environment_ = std::make_unique<sim::ModelledEnvironment>(around_.world, actor_,
                                                              *around_.simulation.responses);
  }
  take(plan.layout.placement);
  life_ = std::make_unique<RankLife>(inputs, plan, rank, *this);
}

void SimulatedRank::take(const policy::Placement& placement) {
  const Inputs& inputs = around_.simulation.inputs;
  const Plan& plan = around_.simulation.plan;
  const bool looked_at = inputs.config.test.check_kv;
  kv_share_.reset();
  store_.reset();
  tiers_.reset();
  runner_.reset();
  kv_ = {};
  const Role role = placement.role(rank_);
  if (role != Role::verifier && role != Role::verifier_member) return;
  const auto [leader, tp] = placement.groups[placement.group(rank_)];
  // The model: in all its roles a rank's GPU keeps the rank's share of the weights for degree
  // least_tp(). For a group of another degree, the rank first loads another share.
  if (life_ && tp != plan.layout.placement.least_tp())
    around_.world.work(actor_, app::loading_seconds(inputs, around_.simulation.machine, tp));
  kv_.shape = kv_shape(inputs, tp, looked_at);
  const std::size_t bytes = kv_.shape.block_bytes() * plan.memory.kv.blocks;
  if (looked_at) {
    const std::size_t most = bytes + kv_.shape.block_bytes() * plan.memory.kv_gain;
    const auto memory = std::make_shared<std::vector<std::byte>>(most);
    kv_.bytes = std::span(*memory).first(bytes);
    kv_.owner = memory;
  } else {
    kv_.bytes = around_.kv_addresses.first(bytes);
  }
  runner_ = std::make_unique<sim::ModelledRunner>(
      around_.world, actor_, step_seconds(tp), *around_.simulation.responses,
      looked_at ? std::optional(kv_) : std::nullopt, rank_ == leader);
  make_store(tp);
  kv_share_ = std::make_unique<roles::KvShare>(
      *blocks_, kv_, rank_ - leader, tp, roles::Recorder{&clock(), &telemetry_}, store_.get());
}

/// Returns the function that gives a step's seconds: the modelled time plus step_overhead.
sim::StepSeconds SimulatedRank::step_seconds(int tp) const {
  const double overhead = around_.simulation.inputs.config.simulation.step_overhead;
  if (around_.instances.empty()) {
    return [&table = costs(tp), overhead](const StepShape& shape, double /*now*/) {
      return table.step_seconds(shape) + overhead;
    };
  }
  const int gpus = around_.simulation.instance->gpus;
  return [&instance = around_.instances[rank_ / gpus], member = rank_ % gpus, overhead](
             const StepShape& shape, double now) {
    return instance.step_seconds(member, shape, now) + overhead;
  };
}

/// Makes the KV store with a real rank's number of blocks, but with small ones if KV is checked.
void SimulatedRank::make_store(int tp) {
  const Inputs& inputs = around_.simulation.inputs;
  const Plan& plan = around_.simulation.plan;
  const io::SimulationSection& simulation = inputs.config.simulation;
  const std::size_t real = kv_shape(inputs, tp, false).block_bytes();
  const auto blocks = [&](std::uint64_t bytes) {
    return static_cast<std::int32_t>(std::min<std::uint64_t>(bytes / real, INT32_MAX));
  };
  kv::StoreSize size;
  size.memory = blocks(plan.memory.kv_pool.memory);
  if (size.memory == 0) return;
  const io::KvPoolSection& pool = inputs.config.kv_pool;
  if (pool.disk)
    size.disk = pool.disk_size ? blocks(*pool.disk_size / simulation.ranks_per_node) : INT32_MAX;
  size.at_once = std::max(1, blocks(std::uint64_t{4} << 20));
  const std::size_t modelled = kv_.shape.block_bytes();
  sim::TierOptions options;
  const double gpus = simulation.gpus_per_rank;
  // Speeds of a DGX H100: each GPU has PCIe 5.0 x16 to its host, and an NVMe drive on PCIe 4.0.
  options.memory = {0, gpus * 50e9};
  options.disk_read = {100e-6, gpus * 6.5e9};
  options.disk_write = {100e-6, gpus * 4e9};
  options.block_bytes = modelled;
  options.bytes_per_byte = static_cast<double>(real) / static_cast<double>(modelled);
  if (!inputs.config.test.check_kv) options.addresses = kv_.bytes.first(modelled);
  options.damaged = inputs.config.test.faults.damaged_blocks;
  options.seed = inputs.config.sampling.seed;
  tiers_ = std::make_unique<sim::ModelledTiers>(around_.world, actor_, rank_, options);
  store_ = std::make_unique<kv::Store>(*tiers_, size, [this](const std::string& text) {
    warn(fmt::format("rank {}: {}", rank_, text));
  });
}

const CostTable& SimulatedRank::costs(int tp) const { return around_.simulation.costs.at(tp); }

std::unique_ptr<draft::Drafter> SimulatedRank::drafter(std::int32_t index) {
  const Plan& plan = around_.simulation.plan;
  const sim::AcceptanceSettings& acceptance = around_.simulation.workload->acceptance;
  const sim::Responses& responses = *around_.simulation.responses;
  const PlannedDrafter& drafter = plan.drafters[index];
  const auto method = std::find_if(acceptance.methods.begin(), acceptance.methods.end(),
                                   [&](const auto& m) { return m.name == drafter.name; });
  const std::vector<DrafterCosts>& all = plan.costs.profile->drafters;
  const auto costs =
      std::find_if(all.begin(), all.end(), [&](const auto& c) { return c.name == drafter.name; });
  if (method == acceptance.methods.end() || costs == all.end())
    throw std::logic_error("no acceptance or no costs of the drafter " + drafter.name);
  const auto number = static_cast<int>(method - acceptance.methods.begin());
  if (drafter.head != nullptr) {
    return std::make_unique<sim::ModelledHead>(around_.world, actor_, *costs, number, acceptance,
                                               responses, *around_.simulation.stop_points);
  }
  return std::make_unique<sim::ModelledDrafter>(around_.world, actor_, *costs, number, acceptance,
                                                responses);
}

void SimulatedRank::account(RankSummary& summary) const {
  const Mailbox::Traffic messages = mailbox_->traffic();
  summary.messages_sent = messages.messages;
  summary.bytes_sent = messages.bytes;
  const BlockTransport::Traffic blocks = blocks_->traffic();
  summary.transfers_sent = blocks.sent;
  summary.transfers_received = blocks.received;
  summary.transfers_failed = blocks.failed;
  summary.transfer_bytes_sent = blocks.bytes_sent;
  summary.transfer_bytes_received = blocks.bytes_received;
  summary.kv_bytes = kv_.bytes.size();
}

}  // namespace paceline::app
