#include "io/hdf5/shard_format.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>
#include <tuple>

#include "io/hdf5/atomic_file.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

std::optional<std::uint32_t> parse_number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "<kind>-<attempt>-<rank>.h5"
std::optional<ShardName> parse_name(const fs::path& path, const std::string& kind) {
  const std::string name = path.filename().string();
  std::string_view rest = name;
  if (!rest.starts_with(kind + "-") || !rest.ends_with(".h5")) return std::nullopt;
  rest.remove_prefix(kind.size() + 1);
  rest.remove_suffix(3);
  const std::size_t dash = rest.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto attempt = parse_number(rest.substr(0, dash));
  const auto rank = parse_number(rest.substr(dash + 1));
  if (!attempt || !rank) return std::nullopt;
  return ShardName{path.string(), *attempt, *rank};
}

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
                          const KeptSpans& kept) {
  const std::uint64_t header[3] = {(std::uint64_t{row.prompt} << 32) | row.sample,
                                   (std::uint64_t{row.length} << 8) | row.finish_reason,
                                   row.weight_version};
  std::uint64_t hash = XXH3_64bits(header, sizeof header);
  hash = XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), hash);
  hash = XXH3_64bits_withSeed(logprob.data(), logprob.size_bytes(), hash);
  hash = XXH3_64bits_withSeed(sampling_logprob.data(), sampling_logprob.size_bytes(), hash);
  if (kept.counts.empty()) return hash;
  hash = XXH3_64bits_withSeed(kept.counts.data(), kept.counts.size_bytes(), hash);
  return XXH3_64bits_withSeed(kept.ids.data(), kept.ids.size_bytes(), hash);
}

std::uint64_t checksum_of_rewards(std::span<const Entry> entries) {
  std::vector<std::uint32_t> bits;
  bits.reserve(entries.size());
  for (const Entry& entry : entries)
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

h5::Handle index_row_type() { return h5::compound(index_row_fields(), sizeof(IndexRow)); }

std::string shard_folder(const std::string& directory) {
  return (fs::path(directory) / "shards").string();
}

std::string attempt_path(const std::string& directory, std::uint32_t attempt) {
  return (fs::path(shard_folder(directory)) / ("attempt-" + std::to_string(attempt) + ".json"))
      .string();
}

std::string shard_path(const std::string& directory, const std::string& kind, std::uint32_t attempt,
                       std::uint32_t rank) {
  const std::string name =
      kind + "-" + std::to_string(attempt) + "-" + std::to_string(rank) + ".h5";
  return (fs::path(shard_folder(directory)) / name).string();
}

std::vector<ShardName> list_shards(const std::string& directory, const std::string& kind) {
  std::vector<ShardName> shards;
  const std::string folder = shard_folder(directory);
  std::error_code error;
  if (!fs::exists(folder, error) && !error) return shards;
  fs::directory_iterator iterator(folder, error);
  for (; !error && iterator != fs::directory_iterator(); iterator.increment(error)) {
    if (auto shard = parse_name(iterator->path(), kind)) shards.push_back(std::move(*shard));
  }
  if (error) throw IoError("cannot list " + folder + ": " + error.message());
  std::sort(shards.begin(), shards.end(), [](const ShardName& a, const ShardName& b) {
    return std::tie(a.attempt, a.rank) < std::tie(b.attempt, b.rank);
  });
  return shards;
}

void publish_shard(h5::File& file) {
  const std::string& path = file.path();
  file.start_swmr();
  if (!commit_temporary(path, true)) {
    throw IoError("cannot create " + path + ": it exists, so another run uses this directory");
  }
}

}  // namespace paceline::io
