// Modelled steps of a group: their costs are looked up, and their tokens are the workload's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/engine/step_runner.hpp"
#include "runtime/sim/responses.hpp"
#include "runtime/sim/world.hpp"

namespace paceline::sim {

/// Shape of a step, by which its cost is looked up.
[[nodiscard]] StepShape shape_of(const engine::Step& step);

/// Seconds that a step takes which begins at `now`.
using StepSeconds = std::function<double(const StepShape& shape, double now)>;

/// The engine of a rank of a group. With memory it stores, in every slot and for every head, the id
/// of the token whose KV this would be. It checks all of a request's slots before it samples the
/// next token, so that wrong, late or foreign KV is found, as it would change a real model's
/// output. Not thread-safe.
class ModelledRunner final : public engine::StepRunner {
 public:
  /// `seconds`: what the group's steps take. `memory`: the KV pool's memory, with one 4-byte
  /// element for each head and slot; absent: nothing is checked. If steps make the pool grow, the
  /// caller has room behind it. `leads`: whether the tokens are read; a member's are not, and
  /// without memory it makes none. References must outlive this object.
  ModelledRunner(World& world, ActorId actor, StepSeconds seconds, const Responses& responses,
                 std::optional<engine::KvMemory> memory, bool leads = true);

  /// Throws std::logic_error where a row would see wrong KV.
  engine::StepResult run(const engine::Step& step) override;

 private:
  void sample(const engine::Step& step);
  [[nodiscard]] const Response& response_of(kv::Handle sequence, const NoiseKey& noise);
  void store(const engine::Step& step);
  void look(const engine::StepPart& part, const Response& response);
  [[nodiscard]] std::int32_t* slot(std::int32_t block, int head, std::int32_t slot);

  World& world_;
  ActorId actor_;
  StepSeconds seconds_;
  const Responses& responses_;
  std::optional<engine::KvMemory> memory_;
  bool leads_;
  std::vector<const Response*> last_;  ///< by sequence: its last response; null: none yet
  engine::BlockTables tables_;
  std::vector<kernels::Sampled> sampled_;
};

}  // namespace paceline::sim
