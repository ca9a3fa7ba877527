#include "io/run/shard_format.hpp"

#include <xxhash.h>

#include <bit>
#include <cmath>
#include <cstddef>

namespace paceline::io {
namespace {

std::uint64_t checksum_of(const RewardRow& row, std::string_view extra) {
  const std::uint32_t words[3] = {row.prompt, row.sample, std::bit_cast<std::uint32_t>(row.value)};
  const std::uint64_t of_reward = XXH3_64bits(words, sizeof words);
  return extra.empty() ? of_reward : XXH3_64bits_withSeed(extra.data(), extra.size(), of_reward);
}

}  // namespace

RewardRow::RewardRow(const Reward& reward, std::string_view extra, std::uint64_t offset)
    : prompt(reward.id.prompt),
      sample(reward.id.sample),
      value(reward.value),
      extra_length(static_cast<std::uint32_t>(extra.size())),
      extra_offset(offset) {
  checksum = checksum_of(*this, extra);
}

bool RewardRow::sound(std::string_view extra) const {
  return checksum == checksum_of(*this, extra) && !std::isnan(value);
}

std::uint64_t checksum_of(const IndexRow& row, std::span<const TokenId> tokens,
                          std::span<const float> logprob, std::span<const float> sampling_logprob,
                          const KeptSpans& kept, std::span<const AnsweredTurn> turns,
                          const TopSpans& top) {
  const std::uint64_t header[3] = {(std::uint64_t{row.prompt} << 32) | row.sample,
                                   (std::uint64_t{row.length} << 8) | row.finish_reason,
                                   row.weight_version};
  std::uint64_t hash = XXH3_64bits(header, sizeof header);
  hash = XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), hash);
  hash = XXH3_64bits_withSeed(logprob.data(), logprob.size_bytes(), hash);
  hash = XXH3_64bits_withSeed(sampling_logprob.data(), sampling_logprob.size_bytes(), hash);
  for (const AnsweredTurn& turn : turns) {
    const std::uint32_t words[4] = {turn.given, turn.end, static_cast<std::uint32_t>(turn.by),
                                    static_cast<std::uint32_t>(turn.reason)};
    hash = XXH3_64bits_withSeed(words, sizeof words, hash);
  }
  if (!top.ids.empty()) {
    hash = XXH3_64bits_withSeed(top.ids.data(), top.ids.size_bytes(), hash);
    hash = XXH3_64bits_withSeed(top.logprob.data(), top.logprob.size_bytes(), hash);
  }
  if (kept.counts.empty()) return hash;
  hash = XXH3_64bits_withSeed(kept.counts.data(), kept.counts.size_bytes(), hash);
  return XXH3_64bits_withSeed(kept.ids.data(), kept.ids.size_bytes(), hash);
}

std::uint64_t checksum_of_rewards(std::span<const StoredResponse> entries) {
  std::vector<std::uint32_t> bits;
  bits.reserve(entries.size());
  for (const StoredResponse& entry : entries)
    bits.push_back(std::isnan(entry.reward) ? ~0U : std::bit_cast<std::uint32_t>(entry.reward));
  return XXH3_64bits(bits.data(), bits.size() * sizeof bits[0]);
}

std::uint64_t checksum_of_extras(std::span<const std::string> extras) {
  std::uint64_t hash = 0;
  for (const std::string& extra : extras)
    hash = XXH3_64bits_withSeed(extra.data(), extra.size(), hash);
  return hash;
}

std::vector<h5::Field> index_row_fields() {
  return {
      {"offset", offsetof(IndexRow, offset), h5::native<std::uint64_t>()},
      {"weight_version", offsetof(IndexRow, weight_version), h5::native<std::uint64_t>()},
      {"checksum", offsetof(IndexRow, checksum), h5::native<std::uint64_t>()},
      {"prompt_index", offsetof(IndexRow, prompt), h5::native<std::uint32_t>()},
      {"sample_index", offsetof(IndexRow, sample), h5::native<std::uint32_t>()},
      {"length", offsetof(IndexRow, length), h5::native<std::uint32_t>()},
      {"finish_reason", offsetof(IndexRow, finish_reason), h5::native<std::uint8_t>()},
  };
}

std::vector<h5::Field> reward_row_fields() {
  return {
      {"checksum", offsetof(RewardRow, checksum), h5::native<std::uint64_t>()},
      {"prompt_index", offsetof(RewardRow, prompt), h5::native<std::uint32_t>()},
      {"sample_index", offsetof(RewardRow, sample), h5::native<std::uint32_t>()},
      {"reward", offsetof(RewardRow, value), h5::native<float>()},
      {"extra_length", offsetof(RewardRow, extra_length), h5::native<std::uint32_t>()},
      {"extra_offset", offsetof(RewardRow, extra_offset), h5::native<std::uint64_t>()},
  };
}

std::vector<h5::Field> turn_row_fields() {
  constexpr std::size_t turn = offsetof(TurnRow, turn);
  return {
      {"offset", offsetof(TurnRow, offset), h5::native<std::uint64_t>()},
      {"given", turn + offsetof(AnsweredTurn, given), h5::native<std::uint32_t>()},
      {"end", turn + offsetof(AnsweredTurn, end), h5::native<std::uint32_t>()},
      {"seconds", turn + offsetof(AnsweredTurn, seconds), h5::native<float>()},
      {"reward", turn + offsetof(AnsweredTurn, reward), h5::native<float>()},
      {"by", turn + offsetof(AnsweredTurn, by), h5::native<std::uint8_t>()},
      {"reason", turn + offsetof(AnsweredTurn, reason), h5::native<std::uint8_t>()},
  };
}

h5::Handle index_row_type() { return h5::compound(index_row_fields(), sizeof(IndexRow)); }

}  // namespace paceline::io
