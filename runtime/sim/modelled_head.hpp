// An EAGLE-3 head in the simulated world.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/sim/drafter.hpp"
#include "runtime/sim/stop_points.hpp"

namespace paceline::sim {

/// Seconds of the host for one decision of a stop network, measured on a Zen 4 core
/// (bench_speculation --decisions).
inline constexpr double kStopSeconds = 10e-6;

/// Drafts recorded trees. Each level has its StopPoint::kStates likeliest tokens, which the judge
/// (draft::Levels) sees as it would see a real head's. The draft keeps the limits.max_tokens
/// likeliest tokens of all drafted levels. The number of levels with the target's token is the
/// accepted length of the recorded tree after as many calls; a draw by scores decides which token
/// of the level it is. Drafts end where the response does. Not thread-safe.
class ModelledHead final : public ModelledDrafter {
 public:
  /// Parameters as for ModelledDrafter. `costs`: a round is a level of limits.paths tokens.
  ModelledHead(World& world, ActorId actor, const DrafterCosts& costs, int method,
               const AcceptanceSettings& all, const Responses& responses, const StopPoints& points)
      : ModelledDrafter(world, actor, costs, method, all, responses), points_(points) {}

  void propose(std::span<draft::DraftSlot> batch, double now, draft::Levels* levels) override;
  /// ModelledDrafter's capabilities without branches, and without memory: a head has one layer, so
  /// to give up its memory gains little.
  [[nodiscard]] draft::Capabilities capabilities() override {
    draft::Capabilities own = ModelledDrafter::capabilities();
    own.branches = false;
    own.memory = nullptr;
    return own;
  }

 private:
  struct Job {
    draft::DraftSlot* slot = nullptr;
    const Response* response = nullptr;
    const StopPoint* point = nullptr;
    std::int32_t first = 0;  ///< index in the response of the draft's first token
    int most = 0;            ///< most levels
    int levels = 0;          ///< levels so far
  };
  void write(const Job& job, bool follows_text) const;

  const StopPoints& points_;
};

}  // namespace paceline::sim
