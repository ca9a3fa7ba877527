// The layout of trajectory shards, shared by their writer and readers. Private to this folder.
//
//   /tokens i32, /logprob f32, /sampling_logprob f32: [tokens], appended and flushed first
//   /kept_ids i32, /kept_offsets i64 [tokens + 1], flushed with tokens, of runs that keep masks:
//       token t could have been any of kept_ids [kept_offsets[t], kept_offsets[t + 1])
//   /top_ids i32, /top_logprob f32 [tokens * K], flushed with tokens, of runs with
//       sampling.logprobs: the most probable tokens at each token's position, best first;
//       /top_ids has the attribute width: K
//   /turns compound, of runs with an environment: the turns of each response, flushed before /index
//   /routed_experts, /routing, flushed before /index, of runs that keep experts: see routing.hpp
//   /index compound: one row a response, flushed last; a row names only tokens that are on disk
//   /rewards compound: one row a reward, of any response of the run; it may come much later
//   /reward_extra u8: UTF-8 text that rows of /rewards name, flushed before them
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/hdf5/file.hpp"
#include "io/run/stored_response.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

/// A turn of a response. Rows of one response follow one another; `offset` is that of its first
/// token.
struct TurnRow {
  std::uint64_t offset = 0;
  AnsweredTurn turn;
};

/// One reward. If a response has several, the last attempt's counts.
struct RewardRow {
  std::uint64_t checksum = 0;  ///< of the other fields and the text; a hole in the file fails it
  std::uint32_t prompt = 0;
  std::uint32_t sample = 0;
  float value = 0;
  std::uint32_t extra_length = 0;  ///< bytes of the reward's extras (RewardExtras), mostly 0
  std::uint64_t extra_offset = 0;

  RewardRow() = default;
  RewardRow(const Reward& reward, std::string_view extra, std::uint64_t offset);
  [[nodiscard]] RequestId id() const { return {prompt, sample}; }
  /// Whether the row and its text are as written, and the value is a number.
  [[nodiscard]] bool sound(std::string_view extra) const;
};

/// A response's part of the kept ids, as in Trajectory; empty: no masks are kept.
struct KeptSpans {
  std::span<const std::int32_t> counts;
  std::span<const TokenId> ids;
};

/// A response's part of the most probable tokens, as in Trajectory; empty: none are recorded.
struct TopSpans {
  std::span<const TokenId> ids;
  std::span<const float> logprob;
};

/// XXH3-64 of a trajectory's own content. Its rewards, its place in the file and the times that its
/// turns took do not count. Equal for equal trajectories.
[[nodiscard]] std::uint64_t checksum_of(const IndexRow& row, std::span<const TokenId> tokens,
                                        std::span<const float> logprob,
                                        std::span<const float> sampling_logprob,
                                        const KeptSpans& kept,
                                        std::span<const AnsweredTurn> turns = {},
                                        const TopSpans& top = {});

/// XXH3-64 of the rewards of responses, in order; all missing rewards count alike.
[[nodiscard]] std::uint64_t checksum_of_rewards(std::span<const StoredResponse> entries);
/// XXH3-64 of the extras, in the same order.
[[nodiscard]] std::uint64_t checksum_of_extras(std::span<const std::string> extras);

[[nodiscard]] std::vector<h5::Field> index_row_fields();
/// The type of a row of /index in memory; the file stores packed() of it.
[[nodiscard]] h5::Handle index_row_type();
[[nodiscard]] std::vector<h5::Field> reward_row_fields();
[[nodiscard]] std::vector<h5::Field> turn_row_fields();

}  // namespace paceline::io
