#include "io/text/prompt_pictures.hpp"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "io/images/picture.hpp"
#include "io/images/processor.hpp"
#include "io/text/files.hpp"
#include "io/text/prompts.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace text {
namespace {

constexpr std::size_t kMostThreads = 16;
constexpr std::int64_t kLargePicture = std::int64_t{1} << 24;  // pixels

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Decodes pictures for several threads; large pictures one at a time.
class Decoder {
 public:
  [[nodiscard]] Picture decode(std::span<const std::byte> file, const std::string& name) {
    PictureLimits limits;
    limits.pixels = std::min(limits.pixels, kLargePicture);
    try {
      return decode_picture(file, name, limits);
    } catch (const DataError&) {  // large, or damaged
      const std::scoped_lock lock(large_);
      return decode_picture(file, name);
    }
  }

 private:
  std::mutex large_;
};

SeenPicture look_at_one(const PictureFile& file, const ImageProcessorConfig& processor,
                        Decoder& decoder) {
  SeenPicture seen;
  try {
    const std::string& path = file.path;
    const std::string name = path.empty() ? "the line's own bytes" : path;
    const std::string read = path.empty() ? "" : read_file(path);
    const std::span<const std::byte> bytes = path.empty() ? std::span(file.bytes) : bytes_of(read);
    seen.hash = picture_hash(bytes);
    const Picture picture = decoder.decode(bytes, name);
    seen.grid = grid_of(processor, picture.width, picture.height, name);
  } catch (...) {
    seen.damage = std::current_exception();
  }
  return seen;
}

}  // namespace

std::vector<SeenPicture> look_at(std::span<const PictureFile> files,
                                 const ImageProcessorConfig& processor) {
  std::vector<SeenPicture> seen(files.size());
  std::vector<std::size_t> like(files.size());  // index of the first file with this path
  std::map<std::string, std::size_t> first;
  std::vector<std::size_t> work;
  for (std::size_t i = 0; i < files.size(); ++i) {
    like[i] = files[i].path.empty() ? i : first.try_emplace(files[i].path, i).first->second;
    if (like[i] == i) work.push_back(i);
  }
  Decoder decoder;
  std::atomic<std::size_t> next = 0;
  const auto help = [&] {
    for (std::size_t at = next++; at < work.size(); at = next++)
      seen[work[at]] = look_at_one(files[work[at]], processor, decoder);
  };
  {
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::jthread> helpers(std::min({cores, kMostThreads, work.size()}));
    for (std::jthread& helper : helpers) helper = std::jthread(help);
  }
  for (std::size_t i = 0; i < files.size(); ++i) seen[i] = seen[like[i]];
  return seen;
}

void place_pictures(std::vector<TokenId>& tokens, std::vector<PromptPicture>& pictures,
                    const PictureOptions& options) {
  const auto is_place = [&options](TokenId id) { return id == options.token; };
  const auto merge = std::int64_t{options.processor.merge} * options.processor.merge;
  const auto places = static_cast<std::size_t>(std::ranges::count_if(tokens, is_place));
  std::size_t rows = 0;
  for (const PromptPicture& picture : pictures)
    rows += static_cast<std::size_t>(picture.grid.patches() / merge);
  const bool each = places == pictures.size();
  if (!each && places != rows) {
    throw DataError(
        "the prompt has " + std::to_string(places) + " of token " + std::to_string(options.token) +
        ", which stands for pictures; expected " + std::to_string(pictures.size()) +
        ", one for each picture of the line" +
        (pictures.empty() ? "" : ", or " + std::to_string(rows) + ", one for each row"));
  }
  std::vector<TokenId> out;
  out.reserve(tokens.size() - places + rows);
  std::size_t at = 0;
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    const auto needed = static_cast<std::size_t>(pictures[i].grid.patches() / merge);
    while (!is_place(tokens[at])) out.push_back(tokens[at++]);
    const std::size_t end = static_cast<std::size_t>(
        std::find_if_not(tokens.begin() + at, tokens.end(), is_place) - tokens.begin());
    if (end - at != (each ? 1 : needed)) {
      throw DataError("picture " + std::to_string(i + 1) + " has " + std::to_string(end - at) +
                      " neighbouring places at token " + std::to_string(at + 1) + "; expected " +
                      std::to_string(each ? 1 : needed) + ", and another token behind");
    }
    pictures[i].first = static_cast<std::int32_t>(out.size());
    out.insert(out.end(), needed, options.token);
    at = end;
  }
  if (!pictures.empty() && at == tokens.size())
    throw DataError("the prompt ends with a picture; expected a token behind it");
  out.insert(out.end(), tokens.begin() + at, tokens.end());
  tokens = std::move(out);
}

}  // namespace text

std::array<std::uint64_t, 2> picture_hash(std::span<const std::byte> file) {
  const XXH128_hash_t hash = XXH3_128bits(file.data(), file.size());
  return {hash.low64, hash.high64};
}

namespace {

/// The bytes of a prompt's picture, checked by its hash. `where`: beginning of messages.
std::vector<std::byte> bytes_of(const PictureFile& file, const PromptPicture& picture,
                                const std::string& where) {
  std::string read;
  try {
    if (!file.path.empty()) read = text::read_file(file.path);
  } catch (const DataError& error) {
    throw DataError(where + error.what());
  } catch (const IoError& error) {
    throw IoError(where + error.what());
  }
  const std::span<const std::byte> bytes =
      file.path.empty() ? std::span(file.bytes) : text::bytes_of(read);
  if (picture_hash(bytes) != picture.hash)
    throw DataError(where + file.path + ": the file is another one than when the run began");
  return {bytes.begin(), bytes.end()};
}

std::string numbered(std::size_t picture) {
  return ": picture " + std::to_string(picture + 1) + ": ";
}

}  // namespace

std::vector<std::byte> PromptPictures::file(std::uint32_t prompt, std::size_t picture) {
  return bytes_of(set_.pictures.at(prompt).at(picture),
                  set_.prompts.at(prompt).pictures.at(picture),
                  name_ + ":" + std::to_string(set_.lines.at(prompt)) + numbered(picture));
}

std::vector<std::byte> StoredPictures::file(std::uint32_t prompt, std::size_t picture) {
  const Prompt& of = prompts_[prompt];
  const std::string where = name_ + ": prompt " + std::to_string(prompt) + numbered(picture);
  std::vector<PictureFile> files;
  try {
    files = text::stored_pictures(of.extra_json);
  } catch (const text::LineError& error) {
    throw DataError(where + error.message);
  }
  if (files.size() != of.pictures.size())
    throw DataError(where + "the prompt's fields have another number of images");
  return bytes_of(files[picture], of.pictures.at(picture), where);
}

}  // namespace paceline::io
