// The verifier: leads a group that generates the responses leased to it.
#pragma once

#include <deque>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/roles/messages.hpp"
#include "runtime/roles/speculator.hpp"

namespace paceline::roles {

/// What a verifier is handed. All references outlive it.
struct VerifierPorts {
  Mailbox& mailbox;
  const Clock& clock;
  engine::Batcher& batcher;
  engine::StepRunner& runner;
  Speculator* speculator;  ///< null: plain decoding
  TrajectorySink& trajectories;
  TelemetrySink& telemetry;
};

/// A state machine whose turn is: apply messages, run one step, publish what ended. A step begins
/// with drafts where there are any: drafter and verifier share the rank (coupled speculation).
/// Finished responses are reported to the coordinator only once they are on disk.
class Verifier {
 public:
  /// `flush_seconds`: finished responses are flushed at least this often (and before any idling).
  Verifier(const VerifierPorts& ports, std::int32_t max_batch, double flush_seconds);

  /// Returns false when there was nothing to do.
  bool turn();
  /// The coordinator has said that nothing more will come.
  [[nodiscard]] bool finished() const { return finished_; }
  /// Totals so far; the caller fills in rank, role and memory.
  [[nodiscard]] RankSummary summary() const { return summary_; }

 private:
  void receive();
  void admit();
  void step();
  void publish(bool force);

  VerifierPorts ports_;
  std::int32_t max_batch_;
  double flush_seconds_;
  std::deque<engine::Admission> waiting_;  ///< leased, no room yet
  Status status_;                          ///< the next to send
  std::vector<RequestId> unflushed_;       ///< ended, not yet known to be on disk
  double last_flush_ = 0;
  double last_status_ = 0;
  bool changed_ = true;  ///< room or activity changed since the last status
  bool stop_asked_ = false;
  bool finished_ = false;
  RankSummary summary_;
};

}  // namespace paceline::roles
