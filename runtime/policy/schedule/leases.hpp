// Leases of a verifier group: number of further requests, length and KV of a lease (Seer's divided
// rollout, section 4.2).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "runtime/core/request.hpp"

namespace paceline::policy {

struct LeaseFacts {
  int room = 0;                ///< further requests the group could take
  int held = 0;                ///< requests that it holds
  std::size_t unfinished = 0;  ///< requests that are leased or wait
  double share = 1;            ///< the group's part of the ranks that verify
};

/// Further requests to lease. Near the end no group takes more than its share of unfinished
/// requests, so that none sits on a queue while another runs dry.
[[nodiscard]] inline int leases_due(const LeaseFacts& facts) {
  const auto share =
      static_cast<int>(std::ceil(static_cast<double>(facts.unfinished) * facts.share - 1e-9));
  return std::max(0, std::min(facts.room, share - facts.held));
}

/// Lease end of a lease that runs to the end of the response, in response tokens.
inline constexpr std::uint32_t kToTheEnd = std::numeric_limits<std::uint32_t>::max();

/// Chunk where KV memory does not hold a full batch at its longest, in response tokens: a share of
/// the request's positions, and not so few that leases cost more than they save. Half a chunk of a
/// request's room lies idle on average, so this is always a small part of it. Seer has 8 K tokens
/// for all (section 6.1), an eighth of its longest response and more than twice most responses: its
/// Qwen2-VL-72B workload, simulated, takes 1,454 s with them and 1,240 s with these.
inline constexpr double kChunkShare = 1.0 / 8;
inline constexpr std::int32_t kLeastChunk = 64;

/// Terms of a run's leases. Requests run in chunks, each a lease: a group is given KV for a whole
/// chunk at once, and so never preempts within one. Without chunks a lease is for the whole
/// response.
struct LeaseTerms {
  std::int32_t chunk = 0;       ///< least response tokens of a lease; 0: all
  double chunk_share = 0;       ///< share of a request's positions, where that is more
  std::int32_t growth = 0;      ///< positions of KV given at a time within a lease; 0: all of it
  std::int32_t max_tokens = 0;  ///< most response tokens where the prompt sets none
  std::int32_t context = std::numeric_limits<std::int32_t>::max();  ///< positions of a sequence
  std::int32_t kv_block = 16;

  /// Response tokens at which a lease ends that begins at `tokens`.
  [[nodiscard]] std::uint32_t until(const Prompt& prompt, std::uint32_t tokens) const {
    const double part = chunk_share * (static_cast<double>(prompt.tokens.size()) + tokens);
    const std::uint32_t end =
        tokens + std::max(static_cast<std::uint32_t>(chunk), static_cast<std::uint32_t>(part));
    return chunk == 0 || end >= static_cast<std::uint32_t>(most(prompt)) ? kToTheEnd : end;
  }
  /// KV blocks that come with a lease from `tokens` to `until`, for a request alone in the pool:
  /// one more than hold its positions, as in kv::Sequences.
  [[nodiscard]] int blocks(const Prompt& prompt, std::uint32_t tokens, std::uint32_t until) const {
    const auto response = std::min<std::int64_t>(until, most(prompt));
    const auto size = static_cast<std::int64_t>(prompt.tokens.size());
    auto positions = size + response;
    if (growth > 0) positions = std::min(positions, size + tokens + growth);
    positions = std::min<std::int64_t>(positions, context);
    return static_cast<int>((positions + kv_block - 1) / kv_block) + 1;
  }
  /// Tokens of the longest response to the prompt.
  [[nodiscard]] std::int32_t most(const Prompt& prompt) const {
    return prompt.sampling.max_tokens.value_or(max_tokens);
  }
};

}  // namespace paceline::policy
