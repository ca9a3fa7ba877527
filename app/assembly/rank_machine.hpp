// The machine beneath a rank's roles: memory and compute, files, messages to others. Ranks of a
// real job and of a simulated one have different machines and the same life (rank_life.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/core/clock.hpp"
#include "runtime/core/environment.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/core/upcoming_requests.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/engine/step_runner.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/roles/group.hpp"

namespace paceline::app {

/// One rank's machine. References to its parts are valid at least until the rank takes another
/// place. Used by one thread.
class RankMachine {
 public:
  virtual ~RankMachine() = default;
  [[nodiscard]] virtual const Clock& clock() const = 0;
  [[nodiscard]] virtual Mailbox& mailbox() = 0;
  [[nodiscard]] virtual TelemetrySink& telemetry() = 0;

  /// Drops weights, engine and KV of the last place, and gets them for a new place. A new machine
  /// has them for its first place. Never waits for another rank.
  virtual void take(const policy::Placement& placement) = 0;
  /// Seconds spent loading weights so far, at the start and in take().
  [[nodiscard]] virtual double loading_seconds() const = 0;

  // Only for a rank in a verifier group.
  [[nodiscard]] virtual engine::StepRunner& runner() = 0;
  [[nodiscard]] virtual const engine::KvMemory& kv() const = 0;
  [[nodiscard]] virtual roles::KvShare& kv_share() = 0;
  /// Costs of steps and drafts in groups of degree `tp`; empty if no policy asks for them.
  [[nodiscard]] virtual const CostTable& costs(int tp) const = 0;

  /// One of the rank's own_drafters(), by its index in plan.drafters. Call once for each place.
  [[nodiscard]] virtual std::unique_ptr<draft::Drafter> drafter(std::int32_t index) = 0;
  /// The environment that answers a verifier's conversations; null: responses are of one turn.
  [[nodiscard]] virtual Environment* environment() { return nullptr; }
  /// The sink for a verifier's responses.
  [[nodiscard]] virtual TrajectorySink& trajectories() = 0;

  /// The sink for texts that a verifier generates for the next step; null: they are not kept.
  [[nodiscard]] virtual TrajectorySink* pregenerated(const PregeneratedRun& /*run*/) {
    return nullptr;
  }

  /// Warns the user.
  virtual void warn(const std::string& text) = 0;
  /// Lets `seconds` pass on a drafter rank that is to stall in a test.
  virtual void sleep(double seconds) = 0;
  /// Writes unsaved results to disk, after the rank's last role.
  virtual void close() = 0;
  /// Fills in the machine's traffic, loading, writing and memory.
  virtual void account(RankSummary& summary) const = 0;
};

}  // namespace paceline::app
