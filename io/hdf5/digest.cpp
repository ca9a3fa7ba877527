#include "io/hdf5/digest.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <tuple>

#include "io/hdf5/file.hpp"
#include "io/hdf5/final_file.hpp"
#include "io/hdf5/manifest.hpp"
#include "io/hdf5/shard_index.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kWindowBytes = std::size_t{32} << 20;

/// The rows of a final file as entries of source 0.
std::vector<Entry> final_entries(const std::string& path) {
  const h5::File file = h5::File::open(path);
  const auto read = [&file]<typename T>(T /*type*/, const std::string& name) {
    return h5::read_all<T>(file, "trajectories/" + name);
  };
  const auto prompt = read(std::int32_t{}, "prompt_index");
  const auto sample = read(std::int32_t{}, "sample_index");
  const auto offsets = read(std::int64_t{}, "offsets");
  const auto reason = read(std::uint8_t{}, "finish_reason");
  const auto reward = read(float{}, "reward");
  const auto version = read(std::uint64_t{}, "weight_version");
  const std::size_t count = prompt.size();
  bool sound = sample.size() == count && offsets.size() == count + 1 && reason.size() == count &&
               reward.size() == count && version.size() == count;
  for (std::size_t i = 0; sound && i < count; ++i)
    sound = 0 <= offsets[i] && offsets[i] <= offsets[i + 1];
  if (!sound) throw IoError("cannot read " + path + ":/trajectories: its columns do not agree");
  std::vector<Entry> entries(count);
  for (std::size_t i = 0; i < count; ++i) {
    Entry& entry = entries[i];
    entry.offset = static_cast<std::uint64_t>(offsets[i]);
    entry.length = static_cast<std::uint32_t>(offsets[i + 1] - offsets[i]);
    entry.prompt = static_cast<std::uint32_t>(prompt[i]);
    entry.sample = static_cast<std::uint32_t>(sample[i]);
    entry.finish_reason = reason[i];
    entry.reward = reward[i];
    entry.weight_version = version[i];
  }
  return entries;
}

/// The place of each prompt when prompts are ordered by uid.
std::vector<std::size_t> rank_by_uid(const std::vector<Prompt>& prompts) {
  std::vector<std::size_t> order(prompts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::tie(prompts[a].uid, a) < std::tie(prompts[b].uid, b);
  });
  std::vector<std::size_t> rank(prompts.size());
  for (std::size_t i = 0; i < order.size(); ++i) rank[order[i]] = i;
  return rank;
}

}  // namespace

DigestReport digest_report(const std::string& path) {
  const auto lock = h5::lock_hdf5();
  std::string file = path;
  ShardIndex index;
  std::string prefix = "trajectories/";
  if (fs::is_directory(path)) file = (fs::path(path) / kFinalName).string();
  if (fs::exists(file)) {
    index.paths.push_back(file);
    index.finished = final_entries(file);
  } else if (fs::is_directory(path) && fs::exists(fs::path(path) / kManifestName)) {
    index = read_shard_index(path, true);
    prefix.clear();
  } else {
    throw UsageError(path + ": not a run directory or a trajectory file");
  }
  const RunManifest manifest = read_manifest(path);
  const std::vector<Prompt> prompts = read_prompts(path);
  const std::vector<std::size_t> rank = rank_by_uid(prompts);
  for (const Entry& entry : index.finished) {
    if (entry.prompt >= prompts.size()) {
      throw IoError("cannot read " + index.paths[entry.source] + ": a response to prompt " +
                    std::to_string(entry.prompt) + ", but there are " +
                    std::to_string(prompts.size()));
    }
  }
  std::sort(index.finished.begin(), index.finished.end(), [&](const Entry& a, const Entry& b) {
    return std::tie(rank[a.prompt], a.sample) < std::tie(rank[b.prompt], b.sample);
  });
  TrajectoryDigest digest;
  read_in_order(index.paths, prefix, index.finished, kWindowBytes, [&](const Window& window) {
    for (std::size_t i = 0; i < window.entries.size(); ++i) {
      const Prompt& prompt = prompts[window.entries[i].prompt];
      digest.add(prompt.uid, prompt.tokens, window.trajectory(i));
    }
  });
  return {digest.hex(), index.finished.size(), manifest.prompts * manifest.samples};
}

}  // namespace paceline::io
