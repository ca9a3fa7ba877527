// Measures the steps of a rank of a verifier group: a record of each step, and sums over steps.
#pragma once

#include "runtime/core/interfaces.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/core/role.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/step.hpp"
#include "runtime/roles/recorder.hpp"

namespace paceline::roles {

/// The caller calls begin() as a step begins. If the step computes rows, the caller calls go_on(),
/// and end() after the rows; otherwise the caller calls wait(). Not thread-safe.
class StepMeter {
 public:
  /// The mailbox outlives this.
  StepMeter(Role role, const Recorder& recorder, const Mailbox& mailbox)
      : role_(role), recorder_(recorder), mailbox_(mailbox) {}

  /// A step begins now. The caller fills in the fields of its record that the meter cannot know.
  StepRecord& begin();
  /// The step computes nothing, for all requests wait for their KV. The rank waits from the step's
  /// beginning until the next step that computes rows.
  void wait();
  /// The batch is empty, so the rank waits for no KV.
  void stop_waiting() { waits_since_ = -1; }
  /// The step computes rows.
  void go_on();
  /// The step has ended.
  void end(const engine::StepResult& result, const engine::StepCounts& counts = {});

  /// Sums over all steps of the seconds, bytes and counters of StepRecord and StepCounts; other
  /// fields are 0.
  [[nodiscard]] const RankSummary& sums() const { return sums_; }

 private:
  Role role_;
  Recorder recorder_;
  const Mailbox& mailbox_;
  StepRecord record_;
  double waits_since_ = -1;  ///< -1: the rank does not wait
  RankSummary sums_;
};

}  // namespace paceline::roles
