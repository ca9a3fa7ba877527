#include "io/hdf5/digest.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <tuple>

#include "io/hdf5/file.hpp"
#include "io/hdf5/final_entries.hpp"
#include "io/hdf5/final_file.hpp"
#include "io/hdf5/manifest.hpp"
#include "io/hdf5/shard_index.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kWindowBytes = std::size_t{32} << 20;

[[noreturn]] void throw_damaged(const std::string& path, const Entry& entry) {
  throw IoError("cannot read " + path + ": the response to prompt " + std::to_string(entry.prompt) +
                ", sample " + std::to_string(entry.sample) + " is damaged");
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
  if (fs::is_directory(path)) file = (fs::path(path) / kFinalName).string();
  const bool complete = fs::exists(file);
  if (!complete && !(fs::is_directory(path) && fs::exists(fs::path(path) / kManifestName))) {
    throw UsageError(path + ": not a run directory or a trajectory file");
  }
  const std::string source = complete ? file : path;
  const RunManifest manifest = read_manifest(source);
  const std::vector<Prompt> prompts = read_prompts(source);
  if (prompts_fingerprint(prompts) != manifest.prompts_fingerprint) {
    throw IoError("cannot read the prompts of " + source + ": they are damaged");
  }
  ShardIndex index;
  if (complete) {
    index.paths.push_back(file);
    index.finished = final_entries(file, manifest);
  } else {
    index = read_shard_index(path, manifest);
  }
  const std::vector<std::size_t> rank = rank_by_uid(prompts);
  std::sort(index.finished.begin(), index.finished.end(), [&](const Entry& a, const Entry& b) {
    return std::tie(rank[a.prompt], a.sample) < std::tie(rank[b.prompt], b.sample);
  });
  TrajectoryDigest digest;
  const std::string prefix = complete ? "trajectories/" : "";
  read_in_order(index.paths, prefix, index.finished, kWindowBytes, [&](const Window& window) {
    for (std::size_t i = 0; i < window.entries.size(); ++i) {
      const Entry& entry = window.entries[i];
      if (!window.intact(i)) throw_damaged(index.paths[entry.source], entry);
      const Prompt& prompt = prompts[entry.prompt];
      digest.add(prompt.uid, prompt.tokens, window.trajectory(i));
    }
  });
  return {digest.hex(), index.finished.size(), manifest.prompts * manifest.samples};
}

}  // namespace paceline::io
