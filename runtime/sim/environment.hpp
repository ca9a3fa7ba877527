// The other side of modelled conversations: it answers as their workload says.
#pragma once

#include <map>
#include <vector>

#include "runtime/core/environment.hpp"
#include "runtime/sim/responses.hpp"
#include "runtime/sim/world.hpp"

namespace paceline::sim {

/// Answers the turns of a rank's responses in its time. As many wait as there
/// are: no worker is short.
class ModelledEnvironment final : public Environment {
 public:
  /// References outlive this.
  ModelledEnvironment(World& world, ActorId actor, const Responses& responses)
      : world_(world), actor_(actor), responses_(responses) {}
  void ask(const Trajectory& response, bool goes_on) override;
  void leave(RequestId id) override;
  std::vector<EnvironmentReply> take() override;

 private:
  World& world_;
  ActorId actor_;
  const Responses& responses_;
  std::multimap<double, EnvironmentReply> coming_;  ///< by the time when they are there
};

}  // namespace paceline::sim
