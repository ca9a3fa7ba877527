// What a rank has beside its roles: memory and compute, files, the way to others. A real job's
// ranks and those of a simulated one have different machines, and the same life (rank_life.hpp).
#pragma once

#include <memory>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/engine/step_runner.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/roles/group.hpp"

namespace paceline::app {

/// References that it hands out are valid until it takes another place, or longer. Used by one
/// thread.
class RankMachine {
 public:
  virtual ~RankMachine() = default;
  [[nodiscard]] virtual const Clock& clock() const = 0;
  [[nodiscard]] virtual Mailbox& mailbox() = 0;
  [[nodiscard]] virtual TelemetrySink& telemetry() = 0;

  /// Gets what the rank needs for its place, in place of what it needed for the last one. It has
  /// what it needs at the start. Nothing here waits for another rank.
  virtual void take(const policy::Placement& placement) = 0;
  /// Of that and of getting what it has at the start, so far, loading weights. Seconds.
  [[nodiscard]] virtual double loading_seconds() const = 0;

  // Of a rank in a group.
  [[nodiscard]] virtual engine::StepRunner& runner() = 0;
  [[nodiscard]] virtual const engine::KvMemory& kv() const = 0;
  [[nodiscard]] virtual roles::KvShare& kv_share() = 0;
  /// What steps of groups of that degree cost, and drafts; empty where no policy asks.
  [[nodiscard]] virtual const CostTable& costs(int tp) const = 0;

  /// The drafters that the rank makes for itself in its role, in their order: once for each place.
  [[nodiscard]] virtual std::vector<std::unique_ptr<draft::Drafter>> drafters() = 0;
  /// Where a verifier puts responses.
  [[nodiscard]] virtual TrajectorySink& trajectories() = 0;

  /// For the user.
  virtual void warn(const std::string& text) = 0;
  /// A drafter of tests, which stalls, does nothing meanwhile.
  virtual void sleep(double seconds) = 0;
  /// The rank has done its work: what it holds goes to disk.
  virtual void close() = 0;
  /// Fills in what it has sent, loaded and written, and what memory it has.
  virtual void account(RankSummary& summary) const = 0;
};

}  // namespace paceline::app
