// Modelled steps of a group: their costs are looked up, and their tokens are known.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/engine/step_runner.hpp"
#include "runtime/sim/responses.hpp"
#include "runtime/sim/world.hpp"

namespace paceline::sim {

/// The shape of a step by which its cost is looked up.
[[nodiscard]] StepShape shape_of(const engine::Step& step);

/// The engine of a rank of a group. With memory it stores in every slot, for every head, which
/// token's KV it is, and checks all of it before it says what comes next: KV that is wrong, late or
/// another's is found as a real model would show it. Not thread-safe.
class ModelledRunner final : public engine::StepRunner {
 public:
  /// `costs`: of steps of the group's degree; each takes `step_seconds` more, the costs of a real
  /// step beside its engine. `memory`: of KV, in 4-byte elements of a head; none: nothing is
  /// checked. It has more behind it if steps make the pool grow. References outlive this.
  ModelledRunner(World& world, ActorId actor, const CostTable& costs, double step_seconds,
                 const Responses& responses, std::optional<engine::KvMemory> memory);

  /// Throws std::logic_error where a row would see wrong KV.
  std::span<const kernels::Sampled> run(const engine::Step& step) override;
  [[nodiscard]] double forward_seconds() const override { return forward_seconds_; }
  [[nodiscard]] double sample_seconds() const override { return 0; }

 private:
  void store(const engine::Step& step);
  void look(const engine::StepPart& part, const Response& response);
  [[nodiscard]] std::int32_t* slot(std::int32_t block, int head, std::int32_t slot);

  World& world_;
  ActorId actor_;
  const CostTable& costs_;
  double step_seconds_;
  const Responses& responses_;
  std::optional<engine::KvMemory> memory_;
  engine::BlockTables tables_;
  double forward_seconds_ = 0;
  std::vector<kernels::Sampled> sampled_;
};

}  // namespace paceline::sim
