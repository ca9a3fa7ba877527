// The other side of modelled conversations: it answers as the workload says.
#pragma once

#include <map>
#include <vector>

#include "runtime/core/environment.hpp"
#include "runtime/sim/responses.hpp"
#include "runtime/sim/world.hpp"

namespace paceline::sim {

/// Answers the turns of a rank's responses after the workload's waiting times. Any number of
/// answers is prepared at a time: workers are never short.
class ModelledEnvironment final : public Environment {
 public:
  /// References must outlive this object.
  ModelledEnvironment(World& world, ActorId actor, const Responses& responses)
      : world_(world), actor_(actor), responses_(responses) {}
  void ask(const Trajectory& response, bool goes_on) override;
  void leave(RequestId id) override;
  std::vector<EnvironmentReply> take() override;

 private:
  World& world_;
  ActorId actor_;
  const Responses& responses_;
  std::multimap<double, EnvironmentReply> coming_;  ///< by the time at which they arrive
};

}  // namespace paceline::sim
