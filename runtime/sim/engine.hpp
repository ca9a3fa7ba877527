// Runs steps by the clock alone: what they cost is looked up, and what they say is known.
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

/// The work of a step, as costs are looked up.
[[nodiscard]] StepShape shape_of(const engine::Step& step);

/// Each rank of a group has one. With memory it stores in every slot which token's KV that is, for
/// every head, and looks at all of it before it says what comes next: KV that is wrong, late or
/// another's is found as a real model would show it. Not thread-safe.
class ModelledRunner final : public engine::StepRunner {
 public:
  /// `costs` of steps of the group's degree, with `step_seconds` more for each: what a real one
  /// costs beside its engine. `memory`: of KV, in 4-byte elements of a head; none: nothing is
  /// looked at. There is more of it behind if steps make the pool grow. References outlive this.
  ModelledRunner(World& world, ActorId actor, const CostTable& costs, double step_seconds,
                 const Responses& responses, std::optional<engine::KvMemory> memory);

  /// Throws std::logic_error where a row would see KV that is not what it should be.
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
