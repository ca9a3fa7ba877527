#include "io/hdf5/shards.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>

#include "io/hdf5/atomic_file.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/parse_number.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

/// Parses "<kind>-<attempt>-<rank>.h5".
std::optional<ShardName> parse_name(const fs::path& path, const std::string& kind) {
  const std::string name = path.filename().string();
  std::string_view rest = name;
  if (!rest.starts_with(kind + "-") || !rest.ends_with(".h5")) return std::nullopt;
  rest.remove_prefix(kind.size() + 1);
  rest.remove_suffix(3);
  const std::size_t dash = rest.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto attempt = parse_number<std::uint32_t>(rest.substr(0, dash));
  const auto rank = parse_number<std::uint32_t>(rest.substr(dash + 1));
  if (!attempt || !rank) return std::nullopt;
  return ShardName{path.string(), *attempt, *rank};
}

}  // namespace

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
  std::ranges::sort(shards, {}, [](const ShardName& s) { return std::tie(s.attempt, s.rank); });
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
