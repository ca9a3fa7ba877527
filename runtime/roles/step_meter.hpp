// Measures the steps of a rank of a verifier group: a record of each step, and sums over steps.
#pragma once

#include "runtime/core/interfaces.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/core/role.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/step.hpp"
#include "runtime/roles/recorder.hpp"

namespace paceline::roles {

/// The caller calls begin() when a step begins. If the step computes rows, the caller then calls
/// go_on(), computes the rows and calls end(). Otherwise the caller may call wait(). A caller that
/// never calls wait() need not call go_on(). Not thread-safe.
class StepMeter {
 public:
  /// The mailbox outlives this.
  StepMeter(Role role, const Recorder& recorder, const Mailbox& mailbox)
      : role_(role), recorder_(recorder), mailbox_(mailbox) {}

  /// Begins a step and returns its record. The caller fills in the fields that the meter does not.
  StepRecord& begin();
  /// The step computes nothing, because all requests wait for their KV. The rank counts as waiting
  /// from this step's beginning until the next step that computes rows.
  void wait();
  /// To be called when nothing runs: the rank then waits for no KV.
  void stop_waiting() { waits_since_ = -1; }
  void go_on();
  void end(const engine::StepResult& result, const engine::StepCounts& counts = {});

  /// Sums of seconds, bytes and counters (StepRecord, StepCounts) over all steps that computed
  /// rows. Other fields are 0.
  [[nodiscard]] const RankSummary& sums() const { return sums_; }

 private:
  Role role_;
  Recorder recorder_;
  const Mailbox& mailbox_;
  StepRecord record_;
  double waits_since_ = -1;  ///< time since which the rank waits for KV; -1: it does not wait
  RankSummary sums_;
};

}  // namespace paceline::roles
