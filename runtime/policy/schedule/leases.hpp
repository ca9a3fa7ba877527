// How many further requests a verifier group is leased, how long a lease is, and what KV it takes
// (Seer's divided rollout, section 4.2).
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
  int held = 0;                ///< that it has
  std::size_t unfinished = 0;  ///< requests of all groups, and those that wait
  double share = 1;            ///< the group's part of the ranks that verify
};

/// Near the end no group takes more than its share of what is unfinished, so that none sits on a
/// queue while another runs dry.
[[nodiscard]] inline int leases_due(const LeaseFacts& facts) {
  const auto share =
      static_cast<int>(std::ceil(static_cast<double>(facts.unfinished) * facts.share - 1e-9));
  return std::max(0, std::min(facts.room, share - facts.held));
}

/// Response tokens at which a lease ends that goes on to the end of the response.
inline constexpr std::uint32_t kToTheEnd = std::numeric_limits<std::uint32_t>::max();

/// A chunk where KV memory does not hold a full batch at its longest, in response tokens: a part of
/// the positions that the request has by then, and not so few that leases cost more than they save.
/// Of a request's room half a chunk lies idle, so that this is always a small part of it. Seer has
/// 8 K tokens for all (section 6.1), an eighth of its longest response and more than twice most
/// responses: in simulation of its Qwen2-VL-72B workload that takes 1,454 s, these chunks 1,240.
inline constexpr double kChunkShare = 1.0 / 8;
inline constexpr std::int32_t kLeastChunk = 64;

/// What leases of a run are like. Requests run in chunks, each of which is a lease: a group is
/// given KV for that much of a response at once, and so never has to take it from a request in
/// between. Without chunks a lease is for the whole response.
struct LeaseTerms {
  std::int32_t chunk = 0;       ///< response tokens of a lease, at least; 0: all
  double chunk_share = 0;       ///< of a request's positions, where that is more
  std::int32_t growth = 0;      ///< positions of KV given at a time within a lease; 0: all of it
  std::int32_t max_tokens = 0;  ///< of a response to a prompt that has none of its own
  std::int32_t context = std::numeric_limits<std::int32_t>::max();  ///< positions of a sequence
  std::int32_t kv_block = 16;

  /// Where a lease ends that begins with so many tokens of the response.
  [[nodiscard]] std::uint32_t until(const Prompt& prompt, std::uint32_t tokens) const {
    const double part = chunk_share * (static_cast<double>(prompt.tokens.size()) + tokens);
    const std::uint32_t end =
        tokens + std::max(static_cast<std::uint32_t>(chunk), static_cast<std::uint32_t>(part));
    return chunk == 0 || end >= static_cast<std::uint32_t>(most(prompt)) ? kToTheEnd : end;
  }
  /// KV blocks that a request is given with a lease until then, alone in the pool: one more than
  /// hold its positions, as kv::Sequences has it.
  [[nodiscard]] int blocks(const Prompt& prompt, std::uint32_t tokens, std::uint32_t until) const {
    const auto response = std::min<std::int64_t>(until, most(prompt));
    const auto size = static_cast<std::int64_t>(prompt.tokens.size());
    auto positions = size + response;
    if (growth > 0) positions = std::min(positions, size + tokens + growth);
    positions = std::min<std::int64_t>(positions, context);
    return static_cast<int>((positions + kv_block - 1) / kv_block) + 1;
  }
  /// Tokens of the longest response to it.
  [[nodiscard]] std::int32_t most(const Prompt& prompt) const {
    return prompt.sampling.max_tokens.value_or(max_tokens);
  }
};

}  // namespace paceline::policy
