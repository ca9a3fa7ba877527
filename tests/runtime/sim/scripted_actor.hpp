// An actor that does what a test says, and notes when it had turns.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "runtime/sim/world.hpp"

namespace paceline::sim {

class ScriptedActor final : public Actor {
 public:
  using Script = std::function<protocol::Turn(ScriptedActor&)>;

  explicit ScriptedActor(World& world, int host = 0, Script script = {})
      : id(world.add(*this, host)), world_(world), script_(std::move(script)) {}

  protocol::Turn turn() override {
    turns.push_back(now());
    return script_ ? script_(*this) : protocol::Turn{};
  }
  [[nodiscard]] bool over() const override { return ended; }
  [[nodiscard]] double now() const { return world_.clock(id).now(); }

  const ActorId id;
  std::vector<double> turns;  ///< local times of its turns
  bool ended = false;

 private:
  World& world_;
  Script script_;
};

/// Gives all turns that are wanted.
inline void run(World& world) {
  while (world.step()) {
  }
}

}  // namespace paceline::sim
