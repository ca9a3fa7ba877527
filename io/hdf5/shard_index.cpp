#include "io/hdf5/shard_index.hpp"

#include <algorithm>
#include <optional>

#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::uint64_t kRowsAtOnce = 1024;  // a chunk of the index

/// The rows of a shard that can be read; the index may be torn where the machine, not only the
/// process, died.
std::vector<IndexRow> readable_rows(const h5::File& file, std::vector<std::string>& warnings) {
  const h5::Handle type = index_row_type();
  const h5::Dataset index = h5::Dataset::open(file, "index", type.get(), 0);
  std::vector<IndexRow> rows;
  while (rows.size() < index.size()) {
    const std::uint64_t count = std::min(kRowsAtOnce, index.size() - rows.size());
    std::vector<IndexRow> block(count);
    try {
      index.read(rows.size(), count, block.data());
    } catch (const IoError& error) {
      warnings.push_back(std::string(error.what()) + "; " +
                         std::to_string(index.size() - rows.size()) + " responses are lost");
      break;
    }
    rows.insert(rows.end(), block.begin(), block.end());
  }
  return rows;
}

/// A row of zeros: the file has a hole where the index should be.
bool hole(const IndexRow& row) { return row.checksum == 0 && row.length == 0; }

/// Whether the row's response can be read and is what was written.
bool intact(const TokenColumns& columns, const IndexRow& row) {
  if (row.length > columns.size()) return false;  // before memory is asked for
  try {
    std::vector<TokenId> tokens(row.length);
    std::vector<float> logprob(row.length);
    std::vector<float> sampling(row.length);
    columns.read(row.offset, row.length, tokens.data(), logprob.data(), sampling.data());
    return checksum_of(row, tokens, logprob, sampling) == row.checksum;
  } catch (const IoError&) {
    return false;
  }
}

/// Keeps one entry for each id: the last written of finished ones, the longest of partial ones.
void keep_one_each(std::vector<Entry>& entries, bool longest) {
  // Stable: within an id the order of attempts, ranks and rows stays.
  std::stable_sort(entries.begin(), entries.end(), [longest](const Entry& a, const Entry& b) {
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

void warn_of_disagreement(const std::vector<Entry>& sorted, ShardIndex& index) {
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const Entry& a = sorted[i - 1];
    const Entry& b = sorted[i];
    if (a.id() != b.id() || a.checksum == b.checksum) continue;
    index.warnings.push_back("prompt " + std::to_string(a.prompt) + " sample " +
                             std::to_string(a.sample) + " differs between " +
                             index.paths[a.source] + " and " + index.paths[b.source] +
                             ": a response was generated twice and did not come out the same");
  }
}

}  // namespace

ShardIndex read_shard_index(const std::string& directory, bool verify) {
  ShardIndex result;
  for (const ShardName& shard : list_shards(directory, "trajectories")) {
    const auto source = static_cast<std::uint32_t>(result.paths.size());
    result.paths.push_back(shard.path);
    try {
      const TokenColumns columns(shard.path, "");
      std::uint64_t damaged = 0;
      for (const IndexRow& row : readable_rows(columns.file(), result.warnings)) {
        if (hole(row) || (verify && !intact(columns, row))) {
          ++damaged;
        } else {
          (row.finished() ? result.finished : result.partial).emplace_back(row, source);
        }
      }
      if (damaged > 0) {
        result.warnings.push_back(shard.path + ": " + std::to_string(damaged) +
                                  " damaged responses are left out");
      }
    } catch (const IoError& error) {
      result.warnings.push_back(std::string(error.what()) + "; what it held is left out");
    }
  }
  std::stable_sort(result.finished.begin(), result.finished.end(),
                   [](const Entry& a, const Entry& b) { return a.id() < b.id(); });
  warn_of_disagreement(result.finished, result);
  keep_one_each(result.finished, false);
  std::erase_if(result.partial, [&](const Entry& entry) {
    return std::binary_search(result.finished.begin(), result.finished.end(), entry,
                              [](const Entry& a, const Entry& b) { return a.id() < b.id(); });
  });
  keep_one_each(result.partial, true);
  return result;
}

}  // namespace paceline::io
