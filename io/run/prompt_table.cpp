#include "io/run/prompt_table.hpp"

#include <algorithm>
#include <filesystem>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/run/final_file.hpp"
#include "io/run/shard_format.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> strings_of(std::span<const Prompt> prompts, std::string Prompt::*member) {
  std::vector<std::string> values;
  values.reserve(prompts.size());
  for (const Prompt& prompt : prompts) values.push_back(prompt.*member);
  return values;
}

/// The file that has a run's prompts, whether it is finished or in progress.
std::string file_of_prompts(const std::string& path) {
  if (!fs::is_directory(path)) return path;
  const std::string file = (fs::path(path) / kFinalName).string();
  return fs::exists(file) ? file : prompt_file(path);
}

std::vector<std::vector<TokenId>> read_token_table(const h5::File& file) {
  const auto tokens = h5::read_all<TokenId>(file, "prompts/tokens");
  const auto offsets = h5::read_all<std::int64_t>(file, "prompts/offsets");
  const bool sound = !offsets.empty() && offsets.front() == 0 && std::ranges::is_sorted(offsets) &&
                     offsets.back() == static_cast<std::int64_t>(tokens.size());
  if (!sound) throw IoError("cannot read " + file.path() + ":/prompts: its columns do not agree");
  std::vector<std::vector<TokenId>> prompts;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
    prompts.emplace_back(tokens.begin() + offsets[i], tokens.begin() + offsets[i + 1]);
  return prompts;
}

constexpr std::size_t kGridSides = 3;  // frames, rows, columns: image_grid_thw
constexpr const char* kPictureOffsets = "prompts/picture_offsets";

/// Writes the pictures of all prompts, if some prompt has any.
void write_pictures(const h5::File& file, std::span<const Prompt> prompts) {
  std::vector<std::int64_t> offsets{0};
  std::vector<std::uint64_t> hashes;
  std::vector<std::int32_t> grids;
  std::vector<std::int32_t> first;
  for (const Prompt& prompt : prompts) {
    for (const PromptPicture& picture : prompt.pictures) {
      hashes.insert(hashes.end(), picture.hash.begin(), picture.hash.end());
      grids.insert(grids.end(), {1, picture.grid.rows, picture.grid.columns});
      first.push_back(picture.first);
    }
    offsets.push_back(static_cast<std::int64_t>(first.size()));
  }
  if (first.empty()) return;
  h5::write_all(file, kPictureOffsets, offsets);
  h5::write_all(file, "prompts/picture_hash", hashes);
  h5::write_all(file, "prompts/picture_grid", grids);
  h5::write_all(file, "prompts/picture_first", first);
}

void read_pictures(const h5::File& file, std::vector<Prompt>& prompts) {
  if (h5::must(H5Lexists(file.id(), kPictureOffsets, H5P_DEFAULT), "read", file.path()) == 0)
    return;
  const auto offsets = h5::read_all<std::int64_t>(file, kPictureOffsets);
  const auto hashes = h5::read_all<std::uint64_t>(file, "prompts/picture_hash");
  const auto grids = h5::read_all<std::int32_t>(file, "prompts/picture_grid");
  const auto first = h5::read_all<std::int32_t>(file, "prompts/picture_first");
  const bool sound = offsets.size() == prompts.size() + 1 && offsets.front() == 0 &&
                     std::ranges::is_sorted(offsets) &&
                     offsets.back() == static_cast<std::int64_t>(first.size()) &&
                     hashes.size() == 2 * first.size() && grids.size() == kGridSides * first.size();
  if (!sound) throw IoError("cannot read " + file.path() + ":/prompts: its pictures do not agree");
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    for (auto i = static_cast<std::size_t>(offsets[p]);
         i < static_cast<std::size_t>(offsets[p + 1]); ++i) {
      const std::int32_t* grid = grids.data() + kGridSides * i;
      prompts[p].pictures.push_back(
          {{hashes[2 * i], hashes[2 * i + 1]}, {grid[1], grid[2]}, first[i]});
    }
  }
}

}  // namespace

void write_prompt_table(const h5::File& file, std::span<const Prompt> prompts) {
  const h5::Handle group = file.group("prompts");
  std::vector<std::int64_t> offsets{0};
  std::vector<TokenId> tokens;
  for (const Prompt& prompt : prompts) {
    tokens.insert(tokens.end(), prompt.tokens.begin(), prompt.tokens.end());
    offsets.push_back(static_cast<std::int64_t>(tokens.size()));
  }
  h5::write_all(file, "prompts/tokens", tokens);
  h5::write_all(file, "prompts/offsets", offsets);
  h5::write_strings(file, "prompts/uid", strings_of(prompts, &Prompt::uid));
  h5::write_strings(file, "prompts/ground_truth", strings_of(prompts, &Prompt::ground_truth));
  h5::write_strings(file, "prompts/extra", strings_of(prompts, &Prompt::extra_json));
  write_pictures(file, prompts);
}

void write_prompt_index(const h5::File& file, std::span<const std::uint32_t> index) {
  h5::write_all(file, "prompts/index", std::vector<std::int32_t>(index.begin(), index.end()));
}

std::vector<std::uint32_t> read_prompt_index(const std::string& path) {
  const auto index = h5::read_all<std::int32_t>(h5::File::open(path), "prompts/index");
  return {index.begin(), index.end()};
}

std::vector<Prompt> read_prompt_table(const h5::File& file) {
  auto tokens = read_token_table(file);
  auto uid = h5::read_strings(file, "prompts/uid");
  auto truth = h5::read_strings(file, "prompts/ground_truth");
  auto extra = h5::read_strings(file, "prompts/extra");
  const std::size_t count = uid.size();
  if (tokens.size() != count || truth.size() != count || extra.size() != count)
    throw IoError("cannot read " + file.path() + ":/prompts: its columns do not agree");
  std::vector<Prompt> prompts(count);
  for (std::size_t i = 0; i < count; ++i) {
    prompts[i].uid = std::move(uid[i]);
    prompts[i].tokens = std::move(tokens[i]);
    prompts[i].ground_truth = std::move(truth[i]);
    prompts[i].extra_json = std::move(extra[i]);
  }
  read_pictures(file, prompts);
  return prompts;
}

std::string prompt_file(const std::string& directory) {
  return (fs::path(shard_folder(directory)) / "prompts.h5").string();
}

void write_prompt_file(const std::string& directory, std::span<const Prompt> prompts) {
  const std::string path = prompt_file(directory);
  h5::File file = h5::File::create(path, h5::File::Kind::final);
  try {
    write_prompt_table(file, prompts);
    file.close();
    commit_temporary(path);
  } catch (...) {
    file.abandon();
    discard_temporary(path);
    throw;
  }
}

std::vector<Prompt> read_prompts(const std::string& path) {
  const std::string file = file_of_prompts(path);
  const auto lock = h5::lock_hdf5();
  return read_prompt_table(h5::File::open(file));
}

std::vector<std::vector<TokenId>> read_prompt_tokens(const std::string& path) {
  const std::string file = file_of_prompts(path);
  const auto lock = h5::lock_hdf5();
  return read_token_table(h5::File::open(file));
}

}  // namespace paceline::io
