// Leases of a verifier group: their number, length and KV (Seer's divided rollout, section 4.2).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "runtime/core/request.hpp"

namespace paceline::policy {

struct LeaseFacts {
  int room = 0;                ///< further requests that the group could take
  int held = 0;                ///< requests that it holds
  std::size_t unfinished = 0;  ///< requests that are leased or wait
  double share = 1;            ///< the group's ranks over all ranks that verify
};

/// Number of further requests to lease to the group. Near the end no group takes more than its
/// share of unfinished requests, so that none holds many while another has none.
[[nodiscard]] inline int leases_due(const LeaseFacts& facts) {
  const auto share =
      static_cast<int>(std::ceil(static_cast<double>(facts.unfinished) * facts.share - 1e-9));
  return std::max(0, std::min(facts.room, share - facts.held));
}

/// End of a lease that runs to the end of the response, in response tokens.
inline constexpr std::uint32_t kToTheEnd = std::numeric_limits<std::uint32_t>::max();

/// Length of a chunk, in response tokens, if KV memory cannot hold a full batch of longest
/// responses: kChunkShare of the request's positions, but at least kLeastChunk, so that leases do
/// not cost more than they save. On average half of a chunk's KV is unused, so this is a small
/// share of the request's KV. Seer has chunks of 8 K tokens for all requests (section 6.1): an
/// eighth of its longest response, and more than twice most responses. Its Qwen2-VL-72B workload,
/// simulated, takes 1,454 s with chunks of 8 K and 1,240 s with these.
inline constexpr double kChunkShare = 1.0 / 8;
inline constexpr std::int32_t kLeastChunk = 64;

/// Terms of a run's leases. Requests run in chunks, one lease each. A group reserves KV for a whole
/// chunk at once, so that there is no preemption within a chunk. Without chunks a lease is for the
/// whole response.
struct LeaseTerms {
  std::int32_t chunk = 0;       ///< least length of a lease, in response tokens; 0: no chunks
  double chunk_share = 0;       ///< length as a share of a request's positions, if this is more
  std::int32_t growth = 0;      ///< positions of KV reserved at a time; 0: all of the lease's
  std::int32_t max_tokens = 0;  ///< limit on response tokens if a prompt sets none
  std::int32_t context = std::numeric_limits<std::int32_t>::max();  ///< limit on positions
  std::int32_t kv_block = 16;

  /// End, in response tokens, of a lease that begins at `tokens` response tokens.
  [[nodiscard]] std::uint32_t until(const Prompt& prompt, std::uint32_t tokens) const {
    const double part = chunk_share * (static_cast<double>(prompt.tokens.size()) + tokens);
    const std::uint32_t end =
        tokens + std::max(static_cast<std::uint32_t>(chunk), static_cast<std::uint32_t>(part));
    return chunk == 0 || end >= static_cast<std::uint32_t>(most(prompt)) ? kToTheEnd : end;
  }
  /// KV blocks reserved for a lease from `tokens` to `until` if the request shares no block: one
  /// more than its positions fill, as in kv::Sequences.
  [[nodiscard]] int blocks(const Prompt& prompt, std::uint32_t tokens, std::uint32_t until) const {
    const auto response = std::min<std::int64_t>(until, most(prompt));
    const auto size = static_cast<std::int64_t>(prompt.tokens.size());
    auto positions = size + response;
    if (growth > 0) positions = std::min(positions, size + tokens + growth);
    positions = std::min<std::int64_t>(positions, context);
    return static_cast<int>((positions + kv_block - 1) / kv_block) + 1;
  }
  /// Limit on the tokens of a response to the prompt.
  [[nodiscard]] std::int32_t most(const Prompt& prompt) const {
    return prompt.sampling.max_tokens.value_or(max_tokens);
  }
};

}  // namespace paceline::policy
