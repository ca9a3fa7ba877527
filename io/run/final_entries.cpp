#include "io/run/final_entries.hpp"

#include <algorithm>
#include <utility>

#include "io/hdf5/file.hpp"
#include "io/run/shard_index.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {

std::vector<StoredResponse> final_entries(const std::string& path, const RunManifest& manifest) {
  const TokenColumns columns(path, "trajectories/");
  const auto read = [&columns]<typename T>(T /*type*/, const std::string& name) {
    return h5::read_all<T>(columns.file(), "trajectories/" + name);
  };
  const auto prompt = read(std::int32_t{}, "prompt_index");
  const auto sample = read(std::int32_t{}, "sample_index");
  const auto offsets = read(std::int64_t{}, "offsets");
  const auto reason = read(std::uint8_t{}, "finish_reason");
  const auto reward = read(float{}, "reward");
  const auto version = read(std::uint64_t{}, "weight_version");
  const auto checksum = read(std::uint64_t{}, "checksum");
  const std::size_t count = prompt.size();
  const auto tokens = static_cast<std::int64_t>(columns.size());
  const ResponseOrder order(manifest);
  bool sound = count == order.size() && sample.size() == count && offsets.size() == count + 1 &&
               offsets.front() == 0 && offsets.back() == tokens &&
               std::is_sorted(offsets.begin(), offsets.end()) && reason.size() == count &&
               reward.size() == count && version.size() == count && checksum.size() == count;
  std::vector<StoredResponse> entries;
  entries.reserve(sound ? count : 0);
  for (std::size_t i = 0; sound && i < count; ++i) {
    IndexRow row;
    row.offset = static_cast<std::uint64_t>(offsets[i]);
    row.weight_version = version[i];
    row.checksum = checksum[i];
    row.prompt = static_cast<std::uint32_t>(prompt[i]);
    row.sample = static_cast<std::uint32_t>(sample[i]);
    row.length = static_cast<std::uint32_t>(offsets[i + 1] - offsets[i]);
    row.finish_reason = reason[i];
    sound = possible(row, manifest) && row.id() == order.at(i);
    entries.emplace_back(row, 0);
    entries.back().reward = reward[i];
  }
  if (!sound) throw IoError("cannot read " + path + ":/trajectories: its columns are damaged");
  std::uint64_t written = 0;
  const h5::Handle rewards(H5Dopen2(columns.file().id(), "trajectories/reward", H5P_DEFAULT),
                           H5Dclose);
  h5::read_attribute(rewards.get(), path, "checksum", h5::native<std::uint64_t>(), &written);
  if (written != checksum_of_rewards(entries))
    throw IoError("cannot read " + path + ":/trajectories/reward: it is damaged");
  return entries;
}

RewardExtras final_extras(const std::string& path, const std::vector<StoredResponse>& entries) {
  const std::string name = "trajectories/reward_extra";
  const h5::File file = h5::File::open(path);
  RewardExtras extras;
  if (h5::must(H5Lexists(file.id(), name.c_str(), H5P_DEFAULT), "read", path + ":/" + name) == 0)
    return extras;
  std::vector<std::string> texts = h5::read_strings(file, name);
  std::uint64_t written = 0;
  const h5::Handle column(H5Dopen2(file.id(), name.c_str(), H5P_DEFAULT), H5Dclose);
  h5::read_attribute(column.get(), path, "checksum", h5::native<std::uint64_t>(), &written);
  if (texts.size() != entries.size() || written != checksum_of_extras(texts))
    throw IoError("cannot read " + path + ":/" + name + ": it is damaged");
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (!texts[i].empty()) extras.emplace(entries[i].id(), std::move(texts[i]));
  return extras;
}

}  // namespace paceline::io
