#include "io/run/shard_index.hpp"
#include "io/hdf5/shards.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::uint64_t kRowsAtOnce = 1024;      // rows; a chunk of the index
constexpr std::uint64_t kTokensAtOnce = 262144;  // tokens; 3 MiB

bool is_finish_reason(std::uint8_t value) {
  return std::ranges::find(kFinishReasons, static_cast<FinishReason>(value)) !=
         kFinishReasons.end();
}

/// Reads the responses of one shard and compares them with its index.
class ShardReader {
 public:
  ShardReader(const std::string& path, const RunManifest& manifest)
      : manifest_(manifest), columns_(path, "") {}

  /// Calls `use` with every row of an undamaged response; returns the number of damaged ones. An
  /// unreadable part of the index itself becomes a warning; it is torn if the machine died, and not
  /// only the process.
  std::uint64_t read(std::vector<std::string>& warnings,
                     const std::function<void(const IndexRow&)>& use) {
    const h5::Handle type = index_row_type();
    const h5::Dataset index = h5::Dataset::open(columns_.file(), "index", type.get(), 0);
    std::uint64_t damaged = 0;
    std::vector<IndexRow> rows;
    for (std::uint64_t done = 0; done < index.size(); done += rows.size()) {
      rows.assign(std::min(kRowsAtOnce, index.size() - done), {});
      try {
        index.read(done, rows.size(), rows.data());
      } catch (const IoError& error) {
        warnings.push_back(std::string(error.what()) + "; " +
                           counted(index.size() - done, "response is", "responses are") + " lost");
        break;
      }
      for (std::size_t i = 0; i < rows.size();) {
        const std::size_t count = neighbours(std::span(rows).subspan(i));
        const std::span<const IndexRow> together(rows.data() + i, std::max<std::size_t>(count, 1));
        damaged += count == 0 ? 1 : check(together, use);
        i += together.size();
      }
    }
    return damaged;
  }

 private:
  /// Number of leading rows that are possible and contiguous, and can be read at once.
  [[nodiscard]] std::size_t neighbours(std::span<const IndexRow> rows) const {
    std::size_t count = 0;
    std::uint64_t tokens = 0;
    for (const IndexRow& row : rows) {
      const bool hole = row.checksum == 0 && row.length == 0;  // the index has a hole there
      if (hole || !possible(row, manifest_) || row.length > columns_.size()) break;
      if (row.offset != rows.front().offset + tokens) break;
      if (count > 0 && tokens + row.length > kTokensAtOnce) break;
      tokens += row.length;
      ++count;
    }
    return count;
  }

  /// Checks contiguous rows: calls `use` for undamaged ones, returns the number of damaged ones.
  std::uint64_t check(std::span<const IndexRow> rows,
                      const std::function<void(const IndexRow&)>& use) {
    const std::uint64_t count = rows.back().offset + rows.back().length - rows.front().offset;
    std::uint64_t damaged = 0;
    if (!read_tokens(rows.front().offset, count)) {
      if (rows.size() == 1) return 1;
      for (std::size_t i = 0; i < rows.size(); ++i) damaged += check(rows.subspan(i, 1), use);
      return damaged;
    }
    for (const IndexRow& row : rows) {
      const std::uint64_t at = row.offset - rows.front().offset;
      const auto part = [&]<typename T>(const std::vector<T>& values) {
        return std::span<const T>(values).subspan(at, row.length);
      };
      const bool whole =
          checksum_of(row, part(tokens_), part(logprob_), part(sampling_), kept_.of(at, row.length),
                      turns_of(row), top_of(at, row)) == row.checksum &&
          possible(part(tokens_), manifest_);
      if (whole) {
        use(row);
      } else {
        ++damaged;
      }
    }
    return damaged;
  }

  /// The row's turns; empty if they are damaged, which the row's checksum shows.
  [[nodiscard]] std::span<const AnsweredTurn> turns_of(const IndexRow& row) const {
    try {
      return columns_.turns(row.offset, row.length);
    } catch (const IoError&) {
      return {};
    }
  }

  [[nodiscard]] TopSpans top_of(std::uint64_t at, const IndexRow& row) const {
    const std::size_t width = columns_.top_width();
    return {std::span(top_ids_).subspan(at * width, row.length * width),
            std::span(top_logprob_).subspan(at * width, row.length * width)};
  }

  bool read_tokens(std::uint64_t first, std::uint64_t count) {
    if (count > columns_.size()) return false;  // before memory is allocated
    tokens_.resize(count);
    logprob_.resize(count);
    sampling_.resize(count);
    top_ids_.resize(count * columns_.top_width());
    top_logprob_.resize(top_ids_.size());
    try {
      columns_.read(first, count, tokens_.data(), logprob_.data(), sampling_.data());
      columns_.read_top(first, count, top_ids_.data(), top_logprob_.data());
      kept_.clear();
      columns_.read_kept(first, count, kept_);
      kept_.set_start();
    } catch (const IoError&) {
      return false;
    }
    return true;
  }

  const RunManifest& manifest_;
  TokenColumns columns_;
  std::vector<TokenId> tokens_;
  std::vector<float> logprob_, sampling_;
  std::vector<TokenId> top_ids_;
  std::vector<float> top_logprob_;
  Kept kept_;
};

struct ReadReward {
  Reward reward;
  std::string extra;
};

/// Adds the undamaged rewards of a shard. An unreadable one counts as missing.
void read_rewards(const std::string& path, std::vector<ReadReward>& rewards,
                  std::vector<std::string>& warnings) try {
  const h5::File file = h5::File::open(path);
  const h5::Handle type = h5::compound(reward_row_fields(), sizeof(RewardRow));
  const h5::Dataset dataset = h5::Dataset::open(file, "rewards", type.get(), 0);
  std::vector<RewardRow> rows(dataset.size());
  dataset.read(0, rows.size(), rows.data());
  const bool any =
      std::ranges::any_of(rows, [](const RewardRow& row) { return row.extra_length > 0; });
  const auto text =
      any ? h5::read_all<std::uint8_t>(file, "reward_extra") : std::vector<std::uint8_t>();
  for (const RewardRow& row : rows) {
    if (row.extra_offset > text.size() || row.extra_length > text.size() - row.extra_offset)
      continue;
    const auto begin = text.begin() + static_cast<std::ptrdiff_t>(row.extra_offset);
    std::string extra(begin, begin + row.extra_length);
    if (row.sound(extra)) rewards.push_back({{row.id(), row.value}, std::move(extra)});
  }
} catch (const IoError& error) {
  warnings.push_back(std::string(error.what()) + "; its rewards are left out");
}

/// Gives the finished entries, ascending by id, their rewards. The last of several rewards counts.
void join_rewards(std::vector<ReadReward>& rewards, ShardIndex& index) {
  std::ranges::stable_sort(rewards, {}, [](const ReadReward& r) { return r.reward.id; });
  auto entry = index.finished.begin();
  for (auto& [reward, extra] : rewards) {
    while (entry != index.finished.end() && entry->id() < reward.id) ++entry;
    if (entry == index.finished.end()) return;
    if (entry->id() != reward.id) continue;
    entry->reward = reward.value;
    index.extras.erase(reward.id);
    if (!extra.empty()) index.extras.emplace(reward.id, std::move(extra));
  }
}

/// Keeps one entry for each id: of finished ones the last written, of partial ones the longest.
void keep_one_each(std::vector<StoredResponse>& entries, bool longest) {
  // Stable, so that entries of an id stay in the order of attempts, ranks and rows.
  std::ranges::stable_sort(entries, [longest](const StoredResponse& a, const StoredResponse& b) {
    if (a.id() != b.id()) return a.id() < b.id();
    return longest && a.length < b.length;
  });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i + 1 < entries.size() && entries[i + 1].id() == entries[i].id()) continue;
    entries[kept++] = entries[i];
  }
  entries.resize(kept);
}

void warn_of_disagreement(const std::vector<StoredResponse>& sorted, ShardIndex& index) {
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const StoredResponse& a = sorted[i - 1];
    const StoredResponse& b = sorted[i];
    if (a.id() != b.id() || a.checksum == b.checksum) continue;
    index.warnings.push_back("prompt " + std::to_string(a.prompt) + " sample " +
                             std::to_string(a.sample) + " differs between " +
                             index.paths[a.source] + " and " + index.paths[b.source] +
                             ": a response was generated twice and did not come out the same");
  }
}

}  // namespace

bool possible(const IndexRow& row, const RunManifest& manifest) {
  const auto most = static_cast<std::uint64_t>(
      std::max({manifest.sampling.max_tokens, manifest.longest_response, 0}));
  return row.prompt < manifest.prompts && row.sample < manifest.samples_of(row.prompt) &&
         row.weight_version == manifest.weight_version && is_finish_reason(row.finish_reason) &&
         (row.finished() ? row.length <= most : row.length < most);
}

bool possible(std::span<const TokenId> tokens, const RunManifest& manifest) {
  return std::ranges::all_of(tokens, [&](TokenId token) {
    return token >= 0 && static_cast<std::uint64_t>(token) < manifest.vocabulary;
  });
}

ShardIndex read_shard_index(const std::string& directory, const RunManifest& manifest) {
  ShardIndex result;
  std::vector<ReadReward> rewards;
  for (const ShardName& shard : list_shards(directory, "trajectories")) {
    const auto source = static_cast<std::uint32_t>(result.paths.size());
    result.paths.push_back(shard.path);
    try {
      const std::uint64_t damaged =
          ShardReader(shard.path, manifest).read(result.warnings, [&](const IndexRow& row) {
            (row.finished() ? result.finished : result.partial).emplace_back(row, source);
          });
      if (damaged > 0) {
        result.warnings.push_back(shard.path + ": " +
                                  counted(damaged, "damaged response is", "damaged responses are") +
                                  " left out");
      }
      read_rewards(shard.path, rewards, result.warnings);
      if (manifest.sampling.keep_routing) read_routing_places(shard.path, source, result.routing);
    } catch (const IoError& error) {
      result.warnings.push_back(std::string(error.what()) + "; what it held is left out");
    }
  }
  std::ranges::stable_sort(result.finished, {}, &StoredResponse::id);
  warn_of_disagreement(result.finished, result);
  keep_one_each(result.finished, false);
  if (manifest.sampling.keep_routing) {
    const std::size_t lacking = match_routing(result.routing, result.finished);
    if (lacking > 0) {
      result.warnings.push_back(
          counted(lacking, "response is left out, whose", "responses are left out, whose") +
          " experts are damaged");
    }
  }
  join_rewards(rewards, result);
  std::erase_if(result.partial, [&](const StoredResponse& entry) {
    return std::ranges::binary_search(result.finished, entry.id(), {}, &StoredResponse::id);
  });
  keep_one_each(result.partial, true);
  return result;
}

}  // namespace paceline::io
