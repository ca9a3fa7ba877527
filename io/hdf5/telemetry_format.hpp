// The layout of telemetry shards, shared by their writer and the merge. Private to this folder.
//
//   /steps, /events, /transfers, /kv_pool, /draft_memory, /stop_points, /roles, /acceptance,
//       /summary: compound rows as in core/interfaces.hpp, appended under SWMR; /scores likewise,
//       of ScoreRecord
//   /drafter_names: strings, by AcceptanceCell::drafter
//   attributes of /: attempt, rank, started (Unix time, seconds), plan
#pragma once

#include <cstddef>
#include <vector>

#include "io/hdf5/file.hpp"
#include "io/hdf5/telemetry.hpp"
#include "runtime/core/interfaces.hpp"

namespace paceline::io {

inline std::vector<h5::Field> step_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u32 = h5::native<std::uint32_t>();
  return {{"start", offsetof(StepRecord, start), f64},
          {"duration", offsetof(StepRecord, duration), f64},
          {"draft_duration", offsetof(StepRecord, draft_duration), f64},
          {"forward_duration", offsetof(StepRecord, forward_duration), f64},
          {"sample_duration", offsetof(StepRecord, sample_duration), f64},
          {"requests", offsetof(StepRecord, requests), u32},
          {"prefill_tokens", offsetof(StepRecord, prefill_tokens), u32},
          {"decode_tokens", offsetof(StepRecord, decode_tokens), u32},
          {"drafted", offsetof(StepRecord, drafted), u32},
          {"accepted", offsetof(StepRecord, accepted), u32},
          {"draft_calls", offsetof(StepRecord, draft_calls), u32},
          {"kv_blocks_used", offsetof(StepRecord, kv_blocks_used), u32},
          {"kv_blocks", offsetof(StepRecord, kv_blocks), u32},
          {"role", offsetof(StepRecord, role), u32},
          {"late", offsetof(StepRecord, late), u32},
          {"queued", offsetof(StepRecord, queued), u32},
          {"waited", offsetof(StepRecord, waited), f64}};
}

inline std::vector<h5::Field> event_fields() {
  const hid_t u32 = h5::native<std::uint32_t>();
  return {{"time", offsetof(RequestEvent, time), h5::native<double>()},
          {"prompt_index", offsetof(RequestEvent, id.prompt), u32},
          {"sample_index", offsetof(RequestEvent, id.sample), u32},
          {"kind", offsetof(RequestEvent, kind), h5::native<std::uint8_t>()},
          {"tokens", offsetof(RequestEvent, tokens), u32},
          {"mode", offsetof(RequestEvent, mode), h5::native<std::uint8_t>()},
          {"window", offsetof(RequestEvent, window), u32},
          {"method", offsetof(RequestEvent, method), h5::native<std::int32_t>()}};
}

inline std::vector<h5::Field> transfer_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u64 = h5::native<std::uint64_t>();
  const hid_t u8 = h5::native<std::uint8_t>();
  return {{"start", offsetof(TransferRecord, start), f64},
          {"duration", offsetof(TransferRecord, duration), f64},
          {"key", offsetof(TransferRecord, key), u64},
          {"bytes", offsetof(TransferRecord, bytes), u64},
          {"peer", offsetof(TransferRecord, peer), h5::native<std::uint32_t>()},
          {"sends", offsetof(TransferRecord, sends), u8},
          {"complete", offsetof(TransferRecord, complete), u8}};
}

inline std::vector<h5::Field> pool_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u64 = h5::native<std::uint64_t>();
  const hid_t u8 = h5::native<std::uint8_t>();
  return {{"start", offsetof(KvPoolRecord, start), f64},
          {"duration", offsetof(KvPoolRecord, duration), f64},
          {"key", offsetof(KvPoolRecord, key), u64},
          {"bytes", offsetof(KvPoolRecord, bytes), u64},
          {"memory_bytes", offsetof(KvPoolRecord, memory_bytes), u64},
          {"disk_bytes", offsetof(KvPoolRecord, disk_bytes), u64},
          {"use", offsetof(KvPoolRecord, use), u8},
          {"complete", offsetof(KvPoolRecord, complete), u8}};
}

inline std::vector<h5::Field> draft_memory_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u32 = h5::native<std::uint32_t>();
  return {{"start", offsetof(DraftMemoryRecord, start), f64},
          {"duration", offsetof(DraftMemoryRecord, duration), f64},
          {"longest_pause", offsetof(DraftMemoryRecord, longest_pause), f64},
          {"blocks", offsetof(DraftMemoryRecord, blocks), u32},
          {"moved", offsetof(DraftMemoryRecord, moved), u32},
          {"kind", offsetof(DraftMemoryRecord, kind), h5::native<std::uint8_t>()}};
}

inline std::vector<h5::Field> stop_point_fields() {
  constexpr hsize_t kCalls = StopPoint::kCalls;
  const hid_t u32 = h5::native<std::uint32_t>();
  const hid_t f32 = h5::native<float>();
  return {{"prompt_index", offsetof(StopPoint, id.prompt), u32},
          {"sample_index", offsetof(StopPoint, id.sample), u32},
          {"first", offsetof(StopPoint, first), u32},
          {"states", offsetof(StopPoint, states), f32, {kCalls - 1, StopPoint::kStates}},
          {"lengths", offsetof(StopPoint, lengths), f32, {kCalls, kCalls + 1}},
          {"accepted", offsetof(StopPoint, accepted), h5::native<std::uint8_t>(), {kCalls}}};
}

inline std::vector<h5::Field> score_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u32 = h5::native<std::uint32_t>();
  return {{"start", offsetof(ScoreRecord, start), f64},
          {"duration", offsetof(ScoreRecord, duration), f64},
          {"prompt_index", offsetof(ScoreRecord, id.prompt), u32},
          {"sample_index", offsetof(ScoreRecord, id.sample), u32},
          {"reward", offsetof(ScoreRecord, reward), h5::native<float>()},
          {"outcome", offsetof(ScoreRecord, outcome), h5::native<std::uint8_t>()}};
}

inline std::vector<h5::Field> role_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u32 = h5::native<std::uint32_t>();
  return {{"start", offsetof(RoleRecord, start), f64},
          {"preparing", offsetof(RoleRecord, preparing), f64},
          {"loading", offsetof(RoleRecord, loading), f64},
          {"role", offsetof(RoleRecord, role), u32},
          {"epoch", offsetof(RoleRecord, epoch), u32},
          {"leader", offsetof(RoleRecord, leader), h5::native<std::int32_t>()},
          {"tp", offsetof(RoleRecord, tp), u32}};
}

inline std::vector<h5::Field> acceptance_fields() {
  const hid_t u32 = h5::native<std::uint32_t>();
  const hid_t u64 = h5::native<std::uint64_t>();
  return {{"drafter", offsetof(AcceptanceCell, drafter), u32},
          {"position", offsetof(AcceptanceCell, position), u32},
          {"batch", offsetof(AcceptanceCell, batch), u32},
          {"progress", offsetof(AcceptanceCell, progress), u32},
          {"drafted", offsetof(AcceptanceCell, drafted), u64},
          {"accepted", offsetof(AcceptanceCell, accepted), u64}};
}

inline std::vector<h5::Field> summary_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u32 = h5::native<std::uint32_t>();
  const hid_t u64 = h5::native<std::uint64_t>();
  return {{"rank", offsetof(RankSummary, rank), u32},
          {"role", offsetof(RankSummary, role), u32},
          {"leader", offsetof(RankSummary, leader), h5::native<std::int32_t>()},
          {"tp", offsetof(RankSummary, tp), u32},
          {"busy_seconds", offsetof(RankSummary, busy_seconds), f64},
          {"idle_seconds", offsetof(RankSummary, idle_seconds), f64},
          {"steps", offsetof(RankSummary, steps), u64},
          {"prefill_tokens", offsetof(RankSummary, prefill_tokens), u64},
          {"decode_tokens", offsetof(RankSummary, decode_tokens), u64},
          {"drafted", offsetof(RankSummary, drafted), u64},
          {"accepted", offsetof(RankSummary, accepted), u64},
          {"response_tokens", offsetof(RankSummary, response_tokens), u64},
          {"raced", offsetof(RankSummary, raced), u64},
          {"foretold", offsetof(RankSummary, foretold), u64},
          {"wasted", offsetof(RankSummary, wasted), u64},
          {"most_wasted", offsetof(RankSummary, most_wasted), u32},
          {"moved", offsetof(RankSummary, moved), u64},
          {"positions_transferred", offsetof(RankSummary, positions_transferred), u64},
          {"preempted", offsetof(RankSummary, preempted), u64},
          {"recomputed", offsetof(RankSummary, recomputed), u64},
          {"late", offsetof(RankSummary, late), u64},
          {"stale", offsetof(RankSummary, stale), u64},
          {"invalid", offsetof(RankSummary, invalid), u64},
          {"draft_update_bytes", offsetof(RankSummary, draft_update_bytes), u64},
          {"draft_fetch_bytes", offsetof(RankSummary, draft_fetch_bytes), u64},
          {"draft_fetches", offsetof(RankSummary, draft_fetches), u64},
          {"draft_heard", offsetof(RankSummary, draft_heard), u64},
          {"draft_most_behind", offsetof(RankSummary, draft_most_behind), u64},
          {"draft_fetch_seconds", offsetof(RankSummary, draft_fetch_seconds), f64},
          {"waited_seconds", offsetof(RankSummary, waited_seconds), f64},
          {"transfers_sent", offsetof(RankSummary, transfers_sent), u64},
          {"transfers_received", offsetof(RankSummary, transfers_received), u64},
          {"transfers_failed", offsetof(RankSummary, transfers_failed), u64},
          {"transfer_bytes_sent", offsetof(RankSummary, transfer_bytes_sent), u64},
          {"transfer_bytes_received", offsetof(RankSummary, transfer_bytes_received), u64},
          {"pool_stored_bytes", offsetof(RankSummary, pool_stored_bytes), u64},
          {"pool_memory_bytes", offsetof(RankSummary, pool_memory_bytes), u64},
          {"pool_foreseen_bytes", offsetof(RankSummary, pool_foreseen_bytes), u64},
          {"pool_disk_bytes", offsetof(RankSummary, pool_disk_bytes), u64},
          {"pool_down_bytes", offsetof(RankSummary, pool_down_bytes), u64},
          {"pool_up_bytes", offsetof(RankSummary, pool_up_bytes), u64},
          {"pool_most_memory", offsetof(RankSummary, pool_most_memory), u64},
          {"pool_most_disk", offsetof(RankSummary, pool_most_disk), u64},
          {"pool_lost", offsetof(RankSummary, pool_lost), u64},
          {"pool_damaged", offsetof(RankSummary, pool_damaged), u64},
          {"pool_storing_seconds", offsetof(RankSummary, pool_storing_seconds), f64},
          {"pool_restoring_seconds", offsetof(RankSummary, pool_restoring_seconds), f64},
          {"messages_sent", offsetof(RankSummary, messages_sent), u64},
          {"bytes_sent", offsetof(RankSummary, bytes_sent), u64},
          {"message_stalls", offsetof(RankSummary, message_stalls), u64},
          {"most_queued", offsetof(RankSummary, most_queued), u64},
          {"peak_rss_bytes", offsetof(RankSummary, peak_rss_bytes), u64},
          {"weight_bytes", offsetof(RankSummary, weight_bytes), u64},
          {"kv_bytes", offsetof(RankSummary, kv_bytes), u64}};
}

}  // namespace paceline::io
