#include "runtime/roles/verifier.hpp"

#include <algorithm>
#include <stdexcept>

namespace paceline::roles {

Verifier::Verifier(const VerifierPorts& ports, std::int32_t max_batch, double flush_seconds)
    : ports_(ports), max_batch_(max_batch), flush_seconds_(flush_seconds) {}

bool Verifier::turn() {
  receive();
  if (finished_) return true;
  if (stop_asked_ && status_.stopped == 0) {
    for (Trajectory& partial : ports_.batcher.stop()) {
      ports_.telemetry.event({ports_.clock.now(), partial.id, RequestEventKind::stopped,
                              static_cast<std::uint32_t>(partial.tokens.size())});
      ports_.trajectories.append(partial);
    }
    for (const engine::Admission& request : waiting_) {
      if (!request.trajectory.tokens.empty()) ports_.trajectories.append(request.trajectory);
    }
    waiting_.clear();
    status_.stopped = 1;
    changed_ = true;
    ports_.trajectories.flush();
    publish(true);
    return true;
  }
  admit();
  const bool works = ports_.batcher.active() > 0;
  if (works) step();
  publish(!works);
  return works;
}

void Verifier::receive() {
  while (const std::optional<Envelope> envelope = ports_.mailbox.poll()) {
    Message message = decode(envelope->bytes);
    if (auto* lease = std::get_if<Lease>(&message)) {
      ++status_.leases_received;
      const bool resumed = !lease->trajectory.tokens.empty();
      ports_.telemetry.event({ports_.clock.now(), lease->trajectory.id,
                              resumed ? RequestEventKind::resumed : RequestEventKind::leased,
                              static_cast<std::uint32_t>(lease->trajectory.tokens.size())});
      waiting_.push_back({std::move(lease->trajectory), std::move(lease->prompt), lease->noise});
      if (ports_.speculator != nullptr) ports_.speculator->start(waiting_.back());
      changed_ = true;
    } else if (std::holds_alternative<Stop>(message)) {
      stop_asked_ = true;
    } else if (std::holds_alternative<Finish>(message)) {
      finished_ = true;
    } else {
      throw std::logic_error("a verifier got a message meant for the coordinator");
    }
  }
}

void Verifier::admit() {
  while (!waiting_.empty() && ports_.batcher.admit(waiting_.front())) {
    waiting_.pop_front();
    changed_ = true;
  }
}

void Verifier::step() {
  StepRecord record;
  record.start = ports_.clock.now();
  std::span<const engine::DraftTree> drafts;
  if (ports_.speculator != nullptr) {
    const std::span<const engine::Decoding> decoding = ports_.batcher.decoding();
    drafts = ports_.speculator->draft(decoding, ports_.batcher.prefill_rows());
    record.draft_duration = ports_.speculator->draft_seconds();
  }
  const double drafted = ports_.clock.now();
  const engine::Step& plan = ports_.batcher.plan(drafts);
  const engine::StepCounts counts = ports_.batcher.counts();
  const std::vector<Trajectory> finished = ports_.batcher.commit(ports_.runner.run(plan));
  const double verified = ports_.clock.now();
  for (const engine::Committed& c : ports_.batcher.committed()) status_.tokens += c.tokens.size();
  if (ports_.speculator != nullptr) {
    ports_.speculator->commit(ports_.batcher.committed(), verified - drafted);
    record.accepted = ports_.speculator->accepted();
  }
  for (const Trajectory& done : finished) {
    ports_.trajectories.append(done);
    unflushed_.push_back(done.id);
    ports_.telemetry.event({ports_.clock.now(), done.id, RequestEventKind::finished,
                            static_cast<std::uint32_t>(done.tokens.size())});
    changed_ = true;
  }
  record.duration = ports_.clock.now() - record.start;
  record.forward_duration = ports_.runner.forward_seconds();
  record.sample_duration = ports_.runner.sample_seconds();
  record.requests = counts.requests;
  record.prefill_tokens = counts.prefill_tokens;
  record.decode_tokens = counts.decode_tokens;
  record.drafted = counts.drafted;
  record.kv_blocks_used = static_cast<std::uint32_t>(ports_.batcher.blocks_used());
  ports_.telemetry.step(record);
  ++summary_.steps;
  summary_.busy_seconds += record.duration;
  summary_.prefill_tokens += counts.prefill_tokens;
  summary_.decode_tokens += counts.decode_tokens;
  summary_.drafted += record.drafted;
  summary_.accepted += record.accepted;
  summary_.response_tokens = status_.tokens;
}

void Verifier::publish(bool force) {
  constexpr double kStatusSeconds = 0.5;
  const double now = ports_.clock.now();
  // The two periods run on their own: a status must not put off the flush.
  const bool flush = !unflushed_.empty() && (force || now - last_flush_ >= flush_seconds_);
  const bool status_due = !force && now - last_status_ >= kStatusSeconds;
  if (flush) {
    ports_.trajectories.flush();
    ports_.telemetry.flush();
    last_flush_ = now;
    status_.finished = std::move(unflushed_);
    unflushed_.clear();
  }
  if (!flush && !changed_ && !status_due) return;
  status_.active = ports_.batcher.active();
  // With a lease waiting for KV there is room for none.
  status_.room = waiting_.empty() ? max_batch_ - status_.active : 0;
  ports_.mailbox.send(Address::coordinator(), encode(status_));
  status_.finished.clear();
  changed_ = false;
  last_status_ = now;
}

}  // namespace paceline::roles
