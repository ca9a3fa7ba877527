#include "runtime/roles/step_meter.hpp"

#include <utility>

namespace paceline::roles {

StepRecord& StepMeter::begin() {
  record_ = {};
  record_.start = recorder_.now();
  record_.role = static_cast<std::uint32_t>(role_);
  return record_;
}

void StepMeter::wait() {
  if (waits_since_ < 0) waits_since_ = record_.start;
}

void StepMeter::go_on() {
  if (waits_since_ >= 0) record_.waited = record_.start - std::exchange(waits_since_, -1);
}

void StepMeter::end(const engine::StepResult& result, const engine::StepCounts& counts) {
  record_.duration = recorder_.now() - record_.start;
  record_.forward_duration = result.forward_seconds;
  record_.sample_duration = result.sample_seconds;
  record_.picture_duration = result.picture_seconds;
  record_.sum_duration = result.traffic.sum_seconds;
  record_.exchange_duration = result.traffic.exchange_seconds;
  record_.group_bytes = result.traffic.bytes;
  record_.requests = counts.requests;
  record_.prefill_tokens = counts.prefill_tokens;
  record_.decode_tokens = counts.decode_tokens;
  record_.pictures = counts.pictures;
  record_.drafted = counts.drafted;
  record_.queued = static_cast<std::uint32_t>(mailbox_.traffic().queued);
  if (recorder_.telemetry != nullptr) recorder_.telemetry->step(record_);
  ++sums_.steps;
  sums_.busy_seconds += record_.duration;
  sums_.communication_seconds += record_.sum_duration + record_.exchange_duration;
  sums_.group_bytes += record_.group_bytes;
  sums_.waited_seconds += record_.waited;
  sums_.picture_seconds += record_.picture_duration;
  sums_.pictures += counts.pictures;
  sums_.prefill_tokens += counts.prefill_tokens;
  sums_.decode_tokens += counts.decode_tokens;
  sums_.recomputed += counts.recomputed;
  sums_.prefix_shared += counts.shared;
  sums_.drafted += counts.drafted;
  sums_.accepted += record_.accepted;
}

}  // namespace paceline::roles
