#include "io/run/salvage.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/run/final_entries.hpp"
#include "io/run/final_file.hpp"
#include "io/run/shard_format.hpp"
#include "io/run/shard_index.hpp"
#include "io/run/shard_writer.hpp"
#include "runtime/core/descriptor.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

enum Column : std::uint8_t {
  offsets,
  reason,
  reward,
  checksum,
  tokens,
  logprob,
  sampling,
  columns
};

/// Byte offset in the file of each column.
using Places = std::array<std::uint64_t, columns>;

/// Finds offsets by the file's own metadata. Throws IoError if this is damaged.
Places places_in(const std::string& path) {
  const h5::File file = h5::File::open(path);
  const auto place = [&file](const char* name, hid_t type) {
    const h5::Dataset dataset =
        h5::Dataset::open(file, std::string("trajectories/") + name, type, 0);
    const haddr_t at = H5Dget_offset(dataset.id());
    return at == HADDR_UNDEF ? 0 : static_cast<std::uint64_t>(at);  // an empty dataset has none
  };
  return {place("offsets", h5::native<std::int64_t>()),
          place("finish_reason", h5::native<std::uint8_t>()),
          place("reward", h5::native<float>()),
          place("checksum", h5::native<std::uint64_t>()),
          place("tokens", h5::native<TokenId>()),
          place("logprob", h5::native<float>()),
          place("sampling_logprob", h5::native<float>())};
}

/// The bytes of a file. Bytes past its end read as zeros, which checksums reject.
class Bytes {
 public:
  explicit Bytes(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_.get() < 0) throw IoError("cannot open " + describe_errno(path, errno));
  }

  template <typename T>
  [[nodiscard]] std::vector<T> read(std::uint64_t place, std::uint64_t first,
                                    std::uint64_t count) const {
    std::vector<T> values(count);
    auto* to = reinterpret_cast<char*>(values.data());
    const std::uint64_t from = place + first * sizeof(T);
    for (std::uint64_t done = 0; done < count * sizeof(T);) {
      const ssize_t got =
          ::pread(fd_.get(), to + done, count * sizeof(T) - done, static_cast<off_t>(from + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      done += static_cast<std::uint64_t>(got);
    }
    return values;
  }
  [[nodiscard]] std::uint64_t size() const {
    struct stat about {};
    return ::fstat(fd_.get(), &about) == 0 ? static_cast<std::uint64_t>(about.st_size) : 0;
  }

 private:
  Descriptor fd_;
};

/// The length and the column offsets of this run's final file for some number of tokens.
struct Layout {
  Places places{};
  std::uint64_t bytes = 0;
};

Layout layout_of(const std::string& directory, const RunManifest& manifest,
                 std::span<const Prompt> prompts, std::uint64_t token_count) {
  const std::string path = (fs::path(directory) / kFinalName).string() + ".layout";
  const std::string written = write_hollow_file(path, manifest, prompts, token_count);
  Layout layout;
  try {
    layout = {places_in(written), fs::file_size(written)};
  } catch (...) {
    discard_temporary(path);
    throw;
  }
  discard_temporary(path);
  return layout;
}

/// Finds offsets by the length of the file or, if the file was cut short, by its offsets column.
Places places_by_layout(const Bytes& file, const std::string& directory,
                        const RunManifest& manifest, std::span<const Prompt> prompts) {
  constexpr std::uint64_t kBytesPerToken = sizeof(TokenId) + 2 * sizeof(float);
  const std::uint64_t responses = ResponseOrder(manifest).size();
  const std::uint64_t most =
      responses * static_cast<std::uint64_t>(std::max(manifest.sampling.max_tokens, 0));
  const std::uint64_t least = layout_of(directory, manifest, prompts, 1).bytes - kBytesPerToken;
  const std::uint64_t guess =
      file.size() > least ? std::min(most, (file.size() - least) / kBytesPerToken) : 0;
  Layout layout = layout_of(directory, manifest, prompts, guess);
  const auto last = file.read<std::int64_t>(layout.places[offsets], responses, 1).front();
  if (last != static_cast<std::int64_t>(guess) && last >= 0 &&
      static_cast<std::uint64_t>(last) <= most)
    layout = layout_of(directory, manifest, prompts, static_cast<std::uint64_t>(last));
  return layout.places;
}

Places places_of(const std::string& path, const Bytes& file, const std::string& directory,
                 const RunManifest& manifest, std::span<const Prompt> prompts) {
  try {
    return places_in(path);
  } catch (const IoError&) {
    return places_by_layout(file, directory, manifest, prompts);
  }
}

/// Whether a file contains these bytes anywhere.
bool has(const Bytes& file, const void* bytes, std::size_t size) {
  constexpr std::uint64_t kAtOnce = 1 << 20;
  for (std::uint64_t at = 0; at < file.size(); at += kAtOnce) {
    const auto part = file.read<char>(0, at, kAtOnce + size);
    if (::memmem(part.data(), part.size(), bytes, size) != nullptr) return true;
  }
  return false;
}

/// The rewards of all responses; empty: one is damaged. Then the checksum of the rewards as read is
/// nowhere in the file. (The attribute that holds the checksum may itself be damaged.)
std::vector<float> rewards_in(const Bytes& file, const Places& places, std::uint64_t responses) {
  std::vector<float> rewards = file.read<float>(places[reward], 0, responses);
  std::vector<StoredResponse> entries(responses);
  for (std::uint64_t i = 0; i < responses; ++i) entries[i].reward = rewards[i];
  const std::uint64_t sum = checksum_of_rewards(entries);
  return has(file, &sum, sizeof sum) ? rewards : std::vector<float>();
}

/// Extras of the rewards. nullopt: they are damaged, that is, unreadable although the file contains
/// their column's name.
std::optional<RewardExtras> extras_in(const std::string& path, const Bytes& file,
                                      const RunManifest& manifest) {
  const ResponseOrder order(manifest);
  std::vector<StoredResponse> entries(order.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i].prompt = order.at(i).prompt;
    entries[i].sample = order.at(i).sample;
  }
  try {
    return final_extras(path, entries);
  } catch (const IoError&) {
    const std::string_view name = "reward_extra";
    if (has(file, name.data(), name.size())) return std::nullopt;
    return RewardExtras();
  }
}

}  // namespace

Salvage salvage_final_file(const std::string& directory, const RunManifest& manifest,
                           std::span<const Prompt> prompts, std::uint32_t attempt) {
  constexpr std::uint64_t kBetweenFlushes = 4096;  // responses
  const auto lock = h5::lock_hdf5();
  // A file's layout does not tell where masks, turns, top tokens and experts are, nor which prompts
  // were kept.
  const ResponseOrder order(manifest);
  const SamplingParams& kept = manifest.sampling;
  const bool converses = manifest.environment.has_value();
  if (kept.keep_masks || converses || kept.keep_routing || kept.logprobs > 0 || manifest.choice) {
    ShardWriter(directory, attempt, 0, {},
                {kept.keep_masks, converses, kept.keep_routing, kept.logprobs})
        .close();
    return {0, order.size()};
  }
  const std::string path = (fs::path(directory) / kFinalName).string();
  const Bytes file(path);
  const Places places = places_of(path, file, directory, manifest, prompts);
  Salvage salvage;
  salvage.all = order.size();
  const auto starts = file.read<std::int64_t>(places[offsets], 0, salvage.all + 1);
  const auto reasons = file.read<std::uint8_t>(places[reason], 0, salvage.all);
  const auto checksums = file.read<std::uint64_t>(places[checksum], 0, salvage.all);
  std::vector<float> rewards = rewards_in(file, places, salvage.all);
  const std::optional<RewardExtras> extras = extras_in(path, file, manifest);
  if (!extras) rewards.clear();
  salvage.rewards = !rewards.empty() || salvage.all == 0;
  ShardWriter shard(directory, attempt, 0);
  for (std::uint64_t i = 0; i < salvage.all; ++i) {
    const std::int64_t length = starts[i + 1] - starts[i];
    if (starts[i] < 0 || length < 0 || length > manifest.sampling.max_tokens) continue;
    IndexRow row;  // as it must be if its checksum agrees
    row.prompt = order.at(i).prompt;
    row.sample = order.at(i).sample;
    row.weight_version = manifest.weight_version;
    row.length = static_cast<std::uint32_t>(length);
    row.finish_reason = reasons[i];
    row.checksum = checksums[i];
    if (!possible(row, manifest) || !row.finished()) continue;
    const auto first = static_cast<std::uint64_t>(starts[i]);
    Trajectory response;
    response.tokens = file.read<TokenId>(places[tokens], first, row.length);
    response.logprob = file.read<float>(places[logprob], first, row.length);
    response.sampling_logprob = file.read<float>(places[sampling], first, row.length);
    const bool whole = checksum_of(row, response.tokens, response.logprob,
                                   response.sampling_logprob, {}) == row.checksum &&
                       possible(response.tokens, manifest);
    if (!whole) continue;
    response.id = row.id();
    response.finish_reason = static_cast<FinishReason>(row.finish_reason);
    response.weight_version = row.weight_version;
    response.reward = NAN;
    shard.append(response);
    if (!rewards.empty() && !std::isnan(rewards[i])) {
      const auto extra = extras->find(response.id);
      shard.reward({response.id, rewards[i]}, extra == extras->end() ? "" : extra->second);
    }
    if (++salvage.kept % kBetweenFlushes == 0) shard.flush();
  }
  shard.close();
  return salvage;
}

}  // namespace paceline::io
