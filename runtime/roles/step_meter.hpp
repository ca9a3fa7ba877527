// What the steps of a verifier group's rank took: a record of each, and their sums.
#pragma once

#include <cstdint>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/core/role.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/step_runner.hpp"
#include "runtime/roles/recorder.hpp"

namespace paceline::roles {

/// begin(), then end() where rows were computed, or wait() where none could be. Not thread-safe.
class StepMeter {
 public:
  /// The mailbox outlives this.
  StepMeter(Role role, const Recorder& recorder, const Mailbox& mailbox)
      : role_(role), recorder_(recorder), mailbox_(mailbox) {}

  /// A step begins now. Its record is the caller's to fill in with what nobody else knows.
  StepRecord& begin();
  /// The step computes nothing, for all requests wait for their KV: from its beginning until the
  /// next step that does the rank has waited.
  void wait();
  /// There is nothing to wait for.
  void stop_waiting() { waits_since_ = -1; }
  /// The step computes rows.
  void go_on();
  /// The step has ended: the runner says what it took, `counts` what it was made of.
  void end(const engine::StepRunner& runner, const engine::StepCounts& counts = {});

  /// Over all steps: seconds, bytes and counters that StepRecord and StepCounts have; the rest of
  /// it is 0.
  [[nodiscard]] const RankSummary& sums() const { return sums_; }

 private:
  Role role_;
  Recorder recorder_;
  const Mailbox& mailbox_;
  StepRecord record_;
  double waits_since_ = -1;  ///< -1: it does not wait
  RankSummary sums_;
};

}  // namespace paceline::roles
