// The columns of each telemetry record: their names, units and sums. To add a counter: a member of
// its record (interfaces.hpp), a line here, and the code that counts. Files and readers follow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "runtime/core/interfaces.hpp"

namespace paceline {

/// The way in which a column is added up over summaries of a rank's roles.
enum class Sum : std::uint8_t { total, largest, none };

/// A column. `member`: a pointer to the member, or a function that returns a reference to it.
template <typename Member>
struct Column {
  const char* name;
  Member member;
  const char* unit = nullptr;  ///< null: the column holds numbers of an enumeration
  Sum sum = Sum::total;
};

/// The columns of a record as a std::tuple, in the order of the file.
template <typename Record>
inline constexpr auto kColumns = std::tuple{};

inline constexpr auto kPromptOf = [](auto& record) -> auto& { return record.id.prompt; };
inline constexpr auto kSampleOf = [](auto& record) -> auto& { return record.id.sample; };

template <>
inline constexpr auto kColumns<StepRecord> =
    std::tuple{Column{"start", &StepRecord::start, "s"},
               Column{"duration", &StepRecord::duration, "s"},
               Column{"draft_duration", &StepRecord::draft_duration, "s"},
               Column{"forward_duration", &StepRecord::forward_duration, "s"},
               Column{"sample_duration", &StepRecord::sample_duration, "s"},
               Column{"picture_duration", &StepRecord::picture_duration, "s"},
               Column{"sum_duration", &StepRecord::sum_duration, "s"},
               Column{"exchange_duration", &StepRecord::exchange_duration, "s"},
               Column{"group_bytes", &StepRecord::group_bytes, "bytes"},
               Column{"requests", &StepRecord::requests, "requests"},
               Column{"prefill_tokens", &StepRecord::prefill_tokens, "tokens"},
               Column{"decode_tokens", &StepRecord::decode_tokens, "tokens"},
               Column{"pictures", &StepRecord::pictures, "pictures"},
               Column{"drafted", &StepRecord::drafted, "tokens"},
               Column{"accepted", &StepRecord::accepted, "tokens"},
               Column{"draft_calls", &StepRecord::draft_calls, "calls"},
               Column{"kv_blocks_used", &StepRecord::kv_blocks_used, "blocks"},
               Column{"kv_blocks", &StepRecord::kv_blocks, "blocks"},
               Column{"role", &StepRecord::role, "1"},
               Column{"late", &StepRecord::late, "drafts"},
               Column{"queued", &StepRecord::queued, "messages"},
               Column{"waited", &StepRecord::waited, "s"}};

template <>
inline constexpr auto kColumns<RequestEvent> =
    std::tuple{Column{"time", &RequestEvent::time, "s"},
               Column{"prompt_index", kPromptOf, "1"},
               Column{"sample_index", kSampleOf, "1"},
               Column{"kind", &RequestEvent::kind},
               Column{"tokens", &RequestEvent::tokens, "tokens"},
               Column{"method", &RequestEvent::method, "1"},
               Column{"reason", &RequestEvent::reason}};

template <>
inline constexpr auto kColumns<TransferRecord> =
    std::tuple{Column{"start", &TransferRecord::start, "s"},
               Column{"duration", &TransferRecord::duration, "s"},
               Column{"key", &TransferRecord::key, "1"},
               Column{"bytes", &TransferRecord::bytes, "bytes"},
               Column{"peer", &TransferRecord::peer, "1"},
               Column{"sends", &TransferRecord::sends, "1"},
               Column{"complete", &TransferRecord::complete, "1"}};

template <>
inline constexpr auto kColumns<KvPoolRecord> =
    std::tuple{Column{"start", &KvPoolRecord::start, "s"},
               Column{"duration", &KvPoolRecord::duration, "s"},
               Column{"key", &KvPoolRecord::key, "1"},
               Column{"bytes", &KvPoolRecord::bytes, "bytes"},
               Column{"memory_bytes", &KvPoolRecord::memory_bytes, "bytes"},
               Column{"disk_bytes", &KvPoolRecord::disk_bytes, "bytes"},
               Column{"use", &KvPoolRecord::use},
               Column{"complete", &KvPoolRecord::complete, "1"}};

template <>
inline constexpr auto kColumns<DraftMemoryRecord> =
    std::tuple{Column{"start", &DraftMemoryRecord::start, "s"},
               Column{"duration", &DraftMemoryRecord::duration, "s"},
               Column{"longest_pause", &DraftMemoryRecord::longest_pause, "s"},
               Column{"blocks", &DraftMemoryRecord::blocks, "blocks"},
               Column{"moved", &DraftMemoryRecord::moved, "blocks"},
               Column{"kind", &DraftMemoryRecord::kind}};

template <>
inline constexpr auto kColumns<StopPoint> =
    std::tuple{Column{"prompt_index", kPromptOf, "1"},
               Column{"sample_index", kSampleOf, "1"},
               Column{"first", &StopPoint::first, "1"},
               Column{"states", &StopPoint::states, "1"},
               Column{"lengths", &StopPoint::lengths, "1"},
               Column{"accepted", &StopPoint::accepted, "tokens"}};

template <>
inline constexpr auto kColumns<RoleRecord> = std::tuple{
    Column{"start", &RoleRecord::start, "s"},     Column{"preparing", &RoleRecord::preparing, "s"},
    Column{"loading", &RoleRecord::loading, "s"}, Column{"role", &RoleRecord::role, "1"},
    Column{"epoch", &RoleRecord::epoch, "1"},     Column{"leader", &RoleRecord::leader, "1"},
    Column{"tp", &RoleRecord::tp, "ranks"}};

template <>
inline constexpr auto kColumns<WriteRecord> =
    std::tuple{Column{"start", &WriteRecord::start, "s"},
               Column{"duration", &WriteRecord::duration, "s"}, Column{"kind", &WriteRecord::kind}};

template <>
inline constexpr auto kColumns<AcceptanceCell> =
    std::tuple{Column{"drafter", &AcceptanceCell::drafter, "1"},
               Column{"position", &AcceptanceCell::position, "1"},
               Column{"batch", &AcceptanceCell::batch, "requests"},
               Column{"progress", &AcceptanceCell::progress, "tokens"},
               Column{"drafted", &AcceptanceCell::drafted, "tokens"},
               Column{"accepted", &AcceptanceCell::accepted, "tokens"}};

template <>
inline constexpr auto kColumns<RankSummary> =
    std::tuple{Column{"rank", &RankSummary::rank, "1", Sum::none},
               Column{"role", &RankSummary::role, "1", Sum::none},
               Column{"leader", &RankSummary::leader, "1", Sum::none},
               Column{"tp", &RankSummary::tp, "ranks", Sum::none},
               Column{"busy_seconds", &RankSummary::busy_seconds, "s"},
               Column{"idle_seconds", &RankSummary::idle_seconds, "s"},
               Column{"loading_seconds", &RankSummary::loading_seconds, "s"},
               Column{"communication_seconds", &RankSummary::communication_seconds, "s"},
               Column{"flush_seconds", &RankSummary::flush_seconds, "s"},
               Column{"picture_seconds", &RankSummary::picture_seconds, "s"},
               Column{"group_bytes", &RankSummary::group_bytes, "bytes"},
               Column{"steps", &RankSummary::steps, "steps"},
               Column{"prefill_tokens", &RankSummary::prefill_tokens, "tokens"},
               Column{"decode_tokens", &RankSummary::decode_tokens, "tokens"},
               Column{"pictures", &RankSummary::pictures, "pictures"},
               Column{"drafted", &RankSummary::drafted, "tokens"},
               Column{"accepted", &RankSummary::accepted, "tokens"},
               Column{"response_tokens", &RankSummary::response_tokens, "tokens"},
               Column{"raced", &RankSummary::raced, "tokens"},
               Column{"foretold", &RankSummary::foretold, "tokens"},
               Column{"pregenerated", &RankSummary::pregenerated, "tokens"},
               Column{"pregenerating_seconds", &RankSummary::pregenerating_seconds, "s"},
               Column{"wasted", &RankSummary::wasted, "tokens"},
               Column{"most_wasted", &RankSummary::most_wasted, "tokens", Sum::largest},
               Column{"moved", &RankSummary::moved, "requests"},
               Column{"positions_transferred", &RankSummary::positions_transferred, "positions"},
               Column{"preempted", &RankSummary::preempted, "requests"},
               Column{"recomputed", &RankSummary::recomputed, "positions"},
               Column{"prefix_shared", &RankSummary::prefix_shared, "positions"},
               Column{"outcome_seconds", &RankSummary::outcome_seconds, "s"},
               Column{"late", &RankSummary::late, "drafts"},
               Column{"stale", &RankSummary::stale, "tokens"},
               Column{"foreseen", &RankSummary::foreseen, "drafts"},
               Column{"invalid", &RankSummary::invalid, "messages"},
               Column{"draft_update_bytes", &RankSummary::draft_update_bytes, "bytes"},
               Column{"draft_fetch_bytes", &RankSummary::draft_fetch_bytes, "bytes"},
               Column{"draft_fetches", &RankSummary::draft_fetches, "answers"},
               Column{"draft_heard", &RankSummary::draft_heard, "tokens"},
               Column{"draft_most_behind", &RankSummary::draft_most_behind, "tokens", Sum::largest},
               Column{"draft_fetch_seconds", &RankSummary::draft_fetch_seconds, "s"},
               Column{"waited_seconds", &RankSummary::waited_seconds, "s"},
               Column{"transfers_sent", &RankSummary::transfers_sent, "transfers"},
               Column{"transfers_received", &RankSummary::transfers_received, "transfers"},
               Column{"transfers_failed", &RankSummary::transfers_failed, "transfers"},
               Column{"transfer_bytes_sent", &RankSummary::transfer_bytes_sent, "bytes"},
               Column{"transfer_bytes_received", &RankSummary::transfer_bytes_received, "bytes"},
               Column{"pool_stored_bytes", &RankSummary::pool_stored_bytes, "bytes"},
               Column{"pool_memory_bytes", &RankSummary::pool_memory_bytes, "bytes"},
               Column{"pool_foreseen_bytes", &RankSummary::pool_foreseen_bytes, "bytes"},
               Column{"pool_disk_bytes", &RankSummary::pool_disk_bytes, "bytes"},
               Column{"pool_down_bytes", &RankSummary::pool_down_bytes, "bytes"},
               Column{"pool_up_bytes", &RankSummary::pool_up_bytes, "bytes"},
               Column{"pool_most_memory", &RankSummary::pool_most_memory, "bytes", Sum::largest},
               Column{"pool_most_disk", &RankSummary::pool_most_disk, "bytes", Sum::largest},
               Column{"pool_lost", &RankSummary::pool_lost, "requests"},
               Column{"pool_damaged", &RankSummary::pool_damaged, "blocks"},
               Column{"pool_storing_seconds", &RankSummary::pool_storing_seconds, "s"},
               Column{"pool_restoring_seconds", &RankSummary::pool_restoring_seconds, "s"},
               Column{"messages_sent", &RankSummary::messages_sent, "messages"},
               Column{"bytes_sent", &RankSummary::bytes_sent, "bytes"},
               Column{"message_stalls", &RankSummary::message_stalls, "1"},
               Column{"most_queued", &RankSummary::most_queued, "messages", Sum::largest},
               Column{"peak_rss_bytes", &RankSummary::peak_rss_bytes, "bytes"},
               Column{"weight_bytes", &RankSummary::weight_bytes, "bytes"},
               Column{"kv_bytes", &RankSummary::kv_bytes, "bytes"}};

// Every member of the summary is a column. Four bytes pad `most_wasted`.
static_assert(sizeof(RankSummary) ==
              4 + std::apply([](auto... c) { return (sizeof(RankSummary{}.*c.member) + ...); },
                             kColumns<RankSummary>));

/// Adds a role's summary to the sum of the rank's earlier roles. `drafted` and `accepted` count
/// tokens that a verifier verified, or that a drafter rank drafted. A rank that was both counts
/// both, and its steps tell them apart.
inline void add(RankSummary& sum, const RankSummary& role) {
  const auto add_column = [&](const auto& column) {
    auto& total = sum.*column.member;
    const auto more = role.*column.member;
    if (column.sum == Sum::total) total += more;
    if (column.sum == Sum::largest) total = std::max(total, more);
  };
  std::apply([&](const auto&... columns) { (add_column(columns), ...); }, kColumns<RankSummary>);
}

}  // namespace paceline
