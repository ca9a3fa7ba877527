// A rank of a simulated job. It runs the same RankLife as a real rank, but cost tables and a
// virtual clock take the place of the hardware.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "app/assembly/rank_life.hpp"
#include "app/assembly/rank_machine.hpp"
#include "app/simulation/simulation_setup.hpp"
#include "runtime/sim/address_range.hpp"
#include "runtime/sim/blocks.hpp"
#include "runtime/sim/engine.hpp"
#include "runtime/sim/environment.hpp"
#include "runtime/sim/instance.hpp"
#include "runtime/sim/post.hpp"
#include "runtime/sim/tiers.hpp"
#include "runtime/sim/world.hpp"

namespace paceline::app {

/// The parts that all ranks of a simulated job share. All of them must outlive the ranks.
struct SimulatedSurroundings {
  const SimulationSetup& simulation;
  sim::World& world;
  sim::Post& post;
  sim::BlockWire& blocks;
  const sim::AddressRange& kv_addresses;  ///< addresses without memory, for KV that is not checked
  /// Sets of consecutive ranks that share a model's experts (sim/instance.hpp); empty: none.
  std::span<sim::Instance> instances;
  std::function<void(const std::string&)> warn;
};

/// Shape of KV on a rank of a group of degree `tp`. `looked_at`: KV is checked (test.check_kv), so
/// its shape is small: one layer, with a key and a value of 4 bytes for each head and position.
/// Otherwise the shape is that of a real rank.
[[nodiscard]] kernels::KvShape kv_shape(const Inputs& inputs, int tp, bool looked_at);

class SimulatedRank final : public RankMachine, public sim::Actor {
 public:
  /// Adds the rank to the world. Both sinks must outlive this object.
  SimulatedRank(const SimulatedSurroundings& around, int rank, TrajectorySink& trajectories,
                TelemetrySink& telemetry);

  protocol::Turn turn() override { return life_->turn(); }
  [[nodiscard]] bool over() const override { return life_->over(); }
  [[nodiscard]] sim::ActorId actor() const { return actor_; }

  const Clock& clock() const override { return around_.world.clock(actor_); }
  Mailbox& mailbox() override { return *mailbox_; }
  TelemetrySink& telemetry() override { return telemetry_; }
  void take(const policy::Placement& placement) override;
  double loading_seconds() const override { return 0; }
  engine::StepRunner& runner() override { return *runner_; }
  const engine::KvMemory& kv() const override { return kv_; }
  roles::KvShare& kv_share() override { return *kv_share_; }
  const CostTable& costs(int tp) const override;
  std::unique_ptr<draft::Drafter> drafter(std::int32_t index) override;
  Environment* environment() override { return environment_.get(); }
  TrajectorySink& trajectories() override { return trajectories_; }
  void warn(const std::string& text) override { around_.warn(text); }
  void sleep(double seconds) override { around_.world.work(actor_, seconds); }
  void close() override { trajectories_.flush(); }
  void account(RankSummary& summary) const override;

 private:
  void make_store(int tp);
  [[nodiscard]] sim::StepSeconds step_seconds(int tp) const;

  SimulatedSurroundings around_;
  int rank_;
  TrajectorySink& trajectories_;
  TelemetrySink& telemetry_;
  sim::ActorId actor_;
  Mailbox* mailbox_ = nullptr;
  BlockTransport* blocks_ = nullptr;
  std::unique_ptr<sim::ModelledRunner> runner_;
  engine::KvMemory kv_;
  std::unique_ptr<sim::ModelledTiers> tiers_;
  std::unique_ptr<kv::Store> store_;  ///< KV in host memory and on disk; null: none
  std::unique_ptr<roles::KvShare> kv_share_;
  std::unique_ptr<sim::ModelledEnvironment> environment_;  ///< null: responses have one turn
  std::unique_ptr<RankLife> life_;
};

}  // namespace paceline::app
