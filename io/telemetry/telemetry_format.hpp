// The layout of telemetry shards, shared by their writer and the merge. Private to this folder.
//
//   /steps, /events, /transfers, /kv_pool, /draft_memory, /stop_points, /roles, /writes,
//       /acceptance, /summary: compound rows as in core/interfaces.hpp, appended under SWMR;
//       /scores likewise, of ScoreRecord
//   /drafter_names: strings, by AcceptanceCell::drafter
//   attributes of /: attempt, rank, started (Unix time, seconds), host, cores, gpus, plan
#pragma once

#include <cstddef>
#include <vector>

#include "io/hdf5/file.hpp"
#include "io/telemetry/telemetry.hpp"
#include "runtime/core/interfaces.hpp"

namespace paceline::io {

inline std::vector<h5::Field> step_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u32 = h5::native<std::uint32_t>();
  return {{"start", offsetof(StepRecord, start), f64, "s"},
          {"duration", offsetof(StepRecord, duration), f64, "s"},
          {"draft_duration", offsetof(StepRecord, draft_duration), f64, "s"},
          {"forward_duration", offsetof(StepRecord, forward_duration), f64, "s"},
          {"sample_duration", offsetof(StepRecord, sample_duration), f64, "s"},
          {"sum_duration", offsetof(StepRecord, sum_duration), f64, "s"},
          {"exchange_duration", offsetof(StepRecord, exchange_duration), f64, "s"},
          {"group_bytes", offsetof(StepRecord, group_bytes), h5::native<std::uint64_t>(), "bytes"},
          {"requests", offsetof(StepRecord, requests), u32, "requests"},
          {"prefill_tokens", offsetof(StepRecord, prefill_tokens), u32, "tokens"},
          {"decode_tokens", offsetof(StepRecord, decode_tokens), u32, "tokens"},
          {"drafted", offsetof(StepRecord, drafted), u32, "tokens"},
          {"accepted", offsetof(StepRecord, accepted), u32, "tokens"},
          {"draft_calls", offsetof(StepRecord, draft_calls), u32, "calls"},
          {"kv_blocks_used", offsetof(StepRecord, kv_blocks_used), u32, "blocks"},
          {"kv_blocks", offsetof(StepRecord, kv_blocks), u32, "blocks"},
          {"role", offsetof(StepRecord, role), u32, "1"},
          {"late", offsetof(StepRecord, late), u32, "drafts"},
          {"queued", offsetof(StepRecord, queued), u32, "messages"},
          {"waited", offsetof(StepRecord, waited), f64, "s"}};
}

inline std::vector<h5::Field> event_fields() {
  const hid_t u32 = h5::native<std::uint32_t>();
  return {{"time", offsetof(RequestEvent, time), h5::native<double>(), "s"},
          {"prompt_index", offsetof(RequestEvent, id.prompt), u32, "1"},
          {"sample_index", offsetof(RequestEvent, id.sample), u32, "1"},
          {"kind", offsetof(RequestEvent, kind), h5::native<std::uint8_t>()},
          {"tokens", offsetof(RequestEvent, tokens), u32, "tokens"},
          {"mode", offsetof(RequestEvent, mode), h5::native<std::uint8_t>()},
          {"window", offsetof(RequestEvent, window), u32, "tokens"},
          {"method", offsetof(RequestEvent, method), h5::native<std::int32_t>(), "1"},
          {"reason", offsetof(RequestEvent, reason), h5::native<std::uint8_t>()}};
}

inline std::vector<h5::Field> transfer_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u64 = h5::native<std::uint64_t>();
  const hid_t u8 = h5::native<std::uint8_t>();
  return {{"start", offsetof(TransferRecord, start), f64, "s"},
          {"duration", offsetof(TransferRecord, duration), f64, "s"},
          {"key", offsetof(TransferRecord, key), u64, "1"},
          {"bytes", offsetof(TransferRecord, bytes), u64, "bytes"},
          {"peer", offsetof(TransferRecord, peer), h5::native<std::uint32_t>(), "1"},
          {"sends", offsetof(TransferRecord, sends), u8, "1"},
          {"complete", offsetof(TransferRecord, complete), u8, "1"}};
}

inline std::vector<h5::Field> pool_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u64 = h5::native<std::uint64_t>();
  const hid_t u8 = h5::native<std::uint8_t>();
  return {{"start", offsetof(KvPoolRecord, start), f64, "s"},
          {"duration", offsetof(KvPoolRecord, duration), f64, "s"},
          {"key", offsetof(KvPoolRecord, key), u64, "1"},
          {"bytes", offsetof(KvPoolRecord, bytes), u64, "bytes"},
          {"memory_bytes", offsetof(KvPoolRecord, memory_bytes), u64, "bytes"},
          {"disk_bytes", offsetof(KvPoolRecord, disk_bytes), u64, "bytes"},
          {"use", offsetof(KvPoolRecord, use), u8},
          {"complete", offsetof(KvPoolRecord, complete), u8, "1"}};
}

inline std::vector<h5::Field> draft_memory_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u32 = h5::native<std::uint32_t>();
  return {{"start", offsetof(DraftMemoryRecord, start), f64, "s"},
          {"duration", offsetof(DraftMemoryRecord, duration), f64, "s"},
          {"longest_pause", offsetof(DraftMemoryRecord, longest_pause), f64, "s"},
          {"blocks", offsetof(DraftMemoryRecord, blocks), u32, "blocks"},
          {"moved", offsetof(DraftMemoryRecord, moved), u32, "blocks"},
          {"kind", offsetof(DraftMemoryRecord, kind), h5::native<std::uint8_t>()}};
}

inline std::vector<h5::Field> stop_point_fields() {
  constexpr hsize_t kCalls = StopPoint::kCalls;
  const hid_t u32 = h5::native<std::uint32_t>();
  const hid_t f32 = h5::native<float>();
  return {
      {"prompt_index", offsetof(StopPoint, id.prompt), u32, "1"},
      {"sample_index", offsetof(StopPoint, id.sample), u32, "1"},
      {"first", offsetof(StopPoint, first), u32, "1"},
      {"states", offsetof(StopPoint, states), f32, "1", {kCalls - 1, StopPoint::kStates}},
      {"lengths", offsetof(StopPoint, lengths), f32, "1", {kCalls, kCalls + 1}},
      {"accepted", offsetof(StopPoint, accepted), h5::native<std::uint8_t>(), "tokens", {kCalls}}};
}

inline std::vector<h5::Field> score_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u32 = h5::native<std::uint32_t>();
  return {{"start", offsetof(ScoreRecord, start), f64, "s"},
          {"duration", offsetof(ScoreRecord, duration), f64, "s"},
          {"prompt_index", offsetof(ScoreRecord, id.prompt), u32, "1"},
          {"sample_index", offsetof(ScoreRecord, id.sample), u32, "1"},
          {"reward", offsetof(ScoreRecord, reward), h5::native<float>(), "1"},
          {"outcome", offsetof(ScoreRecord, outcome), h5::native<std::uint8_t>()}};
}

inline std::vector<h5::Field> role_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u32 = h5::native<std::uint32_t>();
  return {{"start", offsetof(RoleRecord, start), f64, "s"},
          {"preparing", offsetof(RoleRecord, preparing), f64, "s"},
          {"loading", offsetof(RoleRecord, loading), f64, "s"},
          {"role", offsetof(RoleRecord, role), u32, "1"},
          {"epoch", offsetof(RoleRecord, epoch), u32, "1"},
          {"leader", offsetof(RoleRecord, leader), h5::native<std::int32_t>(), "1"},
          {"tp", offsetof(RoleRecord, tp), u32, "ranks"}};
}

inline std::vector<h5::Field> write_fields() {
  const hid_t f64 = h5::native<double>();
  return {{"start", offsetof(WriteRecord, start), f64, "s"},
          {"duration", offsetof(WriteRecord, duration), f64, "s"},
          {"kind", offsetof(WriteRecord, kind), h5::native<std::uint8_t>()}};
}

inline std::vector<h5::Field> acceptance_fields() {
  const hid_t u32 = h5::native<std::uint32_t>();
  const hid_t u64 = h5::native<std::uint64_t>();
  return {{"drafter", offsetof(AcceptanceCell, drafter), u32, "1"},
          {"position", offsetof(AcceptanceCell, position), u32, "1"},
          {"batch", offsetof(AcceptanceCell, batch), u32, "requests"},
          {"progress", offsetof(AcceptanceCell, progress), u32, "tokens"},
          {"drafted", offsetof(AcceptanceCell, drafted), u64, "tokens"},
          {"accepted", offsetof(AcceptanceCell, accepted), u64, "tokens"}};
}

inline std::vector<h5::Field> summary_fields() {
  const hid_t f64 = h5::native<double>();
  const hid_t u32 = h5::native<std::uint32_t>();
  const hid_t u64 = h5::native<std::uint64_t>();
  return {{"rank", offsetof(RankSummary, rank), u32, "1"},
          {"role", offsetof(RankSummary, role), u32, "1"},
          {"leader", offsetof(RankSummary, leader), h5::native<std::int32_t>(), "1"},
          {"tp", offsetof(RankSummary, tp), u32, "ranks"},
          {"busy_seconds", offsetof(RankSummary, busy_seconds), f64, "s"},
          {"idle_seconds", offsetof(RankSummary, idle_seconds), f64, "s"},
          {"loading_seconds", offsetof(RankSummary, loading_seconds), f64, "s"},
          {"communication_seconds", offsetof(RankSummary, communication_seconds), f64, "s"},
          {"flush_seconds", offsetof(RankSummary, flush_seconds), f64, "s"},
          {"group_bytes", offsetof(RankSummary, group_bytes), u64, "bytes"},
          {"steps", offsetof(RankSummary, steps), u64, "steps"},
          {"prefill_tokens", offsetof(RankSummary, prefill_tokens), u64, "tokens"},
          {"decode_tokens", offsetof(RankSummary, decode_tokens), u64, "tokens"},
          {"drafted", offsetof(RankSummary, drafted), u64, "tokens"},
          {"accepted", offsetof(RankSummary, accepted), u64, "tokens"},
          {"response_tokens", offsetof(RankSummary, response_tokens), u64, "tokens"},
          {"raced", offsetof(RankSummary, raced), u64, "tokens"},
          {"foretold", offsetof(RankSummary, foretold), u64, "tokens"},
          {"wasted", offsetof(RankSummary, wasted), u64, "tokens"},
          {"most_wasted", offsetof(RankSummary, most_wasted), u32, "tokens"},
          {"moved", offsetof(RankSummary, moved), u64, "requests"},
          {"positions_transferred", offsetof(RankSummary, positions_transferred), u64, "positions"},
          {"preempted", offsetof(RankSummary, preempted), u64, "requests"},
          {"recomputed", offsetof(RankSummary, recomputed), u64, "positions"},
          {"late", offsetof(RankSummary, late), u64, "drafts"},
          {"stale", offsetof(RankSummary, stale), u64, "tokens"},
          {"invalid", offsetof(RankSummary, invalid), u64, "messages"},
          {"draft_update_bytes", offsetof(RankSummary, draft_update_bytes), u64, "bytes"},
          {"draft_fetch_bytes", offsetof(RankSummary, draft_fetch_bytes), u64, "bytes"},
          {"draft_fetches", offsetof(RankSummary, draft_fetches), u64, "answers"},
          {"draft_heard", offsetof(RankSummary, draft_heard), u64, "tokens"},
          {"draft_most_behind", offsetof(RankSummary, draft_most_behind), u64, "tokens"},
          {"draft_fetch_seconds", offsetof(RankSummary, draft_fetch_seconds), f64, "s"},
          {"waited_seconds", offsetof(RankSummary, waited_seconds), f64, "s"},
          {"transfers_sent", offsetof(RankSummary, transfers_sent), u64, "transfers"},
          {"transfers_received", offsetof(RankSummary, transfers_received), u64, "transfers"},
          {"transfers_failed", offsetof(RankSummary, transfers_failed), u64, "transfers"},
          {"transfer_bytes_sent", offsetof(RankSummary, transfer_bytes_sent), u64, "bytes"},
          {"transfer_bytes_received", offsetof(RankSummary, transfer_bytes_received), u64, "bytes"},
          {"pool_stored_bytes", offsetof(RankSummary, pool_stored_bytes), u64, "bytes"},
          {"pool_memory_bytes", offsetof(RankSummary, pool_memory_bytes), u64, "bytes"},
          {"pool_foreseen_bytes", offsetof(RankSummary, pool_foreseen_bytes), u64, "bytes"},
          {"pool_disk_bytes", offsetof(RankSummary, pool_disk_bytes), u64, "bytes"},
          {"pool_down_bytes", offsetof(RankSummary, pool_down_bytes), u64, "bytes"},
          {"pool_up_bytes", offsetof(RankSummary, pool_up_bytes), u64, "bytes"},
          {"pool_most_memory", offsetof(RankSummary, pool_most_memory), u64, "bytes"},
          {"pool_most_disk", offsetof(RankSummary, pool_most_disk), u64, "bytes"},
          {"pool_lost", offsetof(RankSummary, pool_lost), u64, "requests"},
          {"pool_damaged", offsetof(RankSummary, pool_damaged), u64, "blocks"},
          {"pool_storing_seconds", offsetof(RankSummary, pool_storing_seconds), f64, "s"},
          {"pool_restoring_seconds", offsetof(RankSummary, pool_restoring_seconds), f64, "s"},
          {"messages_sent", offsetof(RankSummary, messages_sent), u64, "messages"},
          {"bytes_sent", offsetof(RankSummary, bytes_sent), u64, "bytes"},
          {"message_stalls", offsetof(RankSummary, message_stalls), u64, "1"},
          {"most_queued", offsetof(RankSummary, most_queued), u64, "messages"},
          {"peak_rss_bytes", offsetof(RankSummary, peak_rss_bytes), u64, "bytes"},
          {"weight_bytes", offsetof(RankSummary, weight_bytes), u64, "bytes"},
          {"kv_bytes", offsetof(RankSummary, kv_bytes), u64, "bytes"}};
}

}  // namespace paceline::io
