// The interface through which a rank's roles reach memory, compute, files and other ranks. A real
// job and a simulated one implement it differently, and run the same roles on it (rank_life.hpp).
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

/// The machine of one rank. References that it returns are valid at least until the next take().
/// Used by one thread.
class RankMachine {
 public:
  virtual ~RankMachine() = default;
  [[nodiscard]] virtual const Clock& clock() const = 0;
  [[nodiscard]] virtual Mailbox& mailbox() = 0;
  [[nodiscard]] virtual TelemetrySink& telemetry() = 0;

  /// Replaces weights, engine and KV by those that the rank needs for its role in `placement`.
  /// RankLife calls it for each role but the first. Never waits for another rank.
  virtual void take(const policy::Placement& placement) = 0;
  /// Seconds spent loading weights so far; 0 in a simulation.
  [[nodiscard]] virtual double loading_seconds() const = 0;

  // Only a rank in a verifier group may use the next four functions.
  [[nodiscard]] virtual engine::StepRunner& runner() = 0;
  [[nodiscard]] virtual const engine::KvMemory& kv() const = 0;
  [[nodiscard]] virtual roles::KvShare& kv_share() = 0;
  /// Costs of steps, drafts and KV moves in groups of degree `tp`. In a real job they are empty if
  /// no policy reads them.
  [[nodiscard]] virtual const CostTable& costs(int tp) const = 0;

  /// Returns drafter `index` of Plan::drafters, which must be one of own_drafters(). Call at most
  /// once for each drafter in each role.
  [[nodiscard]] virtual std::unique_ptr<draft::Drafter> drafter(std::int32_t index) = 0;
  /// The environment that answers a verifier's conversations; null: responses have a single turn.
  [[nodiscard]] virtual Environment* environment() { return nullptr; }
  /// The sink for a verifier's responses.
  [[nodiscard]] virtual TrajectorySink& trajectories() = 0;

  /// The sink for texts that a verifier generates for the next training step; null: none are kept.
  [[nodiscard]] virtual TrajectorySink* pregenerated(const PregeneratedRun& /*run*/) {
    return nullptr;
  }

  virtual void warn(const std::string& text) = 0;
  /// Stalls a drafter rank for `seconds`, in tests of slow drafters.
  virtual void sleep(double seconds) = 0;
  /// Writes unsaved results to disk. Called after the rank's last role.
  virtual void close() = 0;
  /// Sets fields of `summary` about traffic and memory and, in a real job, loading and writing.
  /// `summary` must have the rank's role.
  virtual void account(RankSummary& summary) const = 0;
};

}  // namespace paceline::app
