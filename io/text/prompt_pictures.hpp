// Pictures of prompts: checks their files, places their rows among the tokens, and reads their
// bytes again during the run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/text/picture_fields.hpp"
#include "runtime/core/image_processor_config.hpp"
#include "runtime/core/pictures.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/types.hpp"

namespace paceline::io {

/// The form in which a model takes pictures.
struct PictureOptions {
  TokenId token = -1;  ///< this token stands in a prompt for each row of a picture
  ImageProcessorConfig processor = {};
};

namespace text {

/// Facts about a picture that was decoded.
struct SeenPicture {
  std::array<std::uint64_t, 2> hash{};  ///< PromptPicture::hash
  PictureGrid grid;
  std::exception_ptr damage;  ///< DataError or IoError that begins with the file's name; null: none
};

/// Reads and decodes every picture, each file once, with several threads, so that damage is found
/// before a run begins. Pictures of more than 2^24 pixels are decoded one at a time, so that memory
/// stays bounded (kDecodingBytesPerPixel).
[[nodiscard]] std::vector<SeenPicture> look_at(std::span<const PictureFile> files,
                                               const ImageProcessorConfig& processor);

/// Puts the rows of pictures at the places of their tokens in a prompt's `tokens`, and sets
/// PromptPicture::first. Each picture has one such token, or as many neighbouring ones as it has
/// rows. Throws DataError that says what there is and what was expected.
void place_pictures(std::vector<TokenId>& tokens, std::vector<PromptPicture>& pictures,
                    const PictureOptions& options);

}  // namespace text

struct PromptSet;

/// The files of a prompt set's pictures. Returned bytes have the hash of their PromptPicture.
class PromptPictures final : public PictureSource {
 public:
  /// `set` outlives this; `name`: name of its file.
  PromptPictures(const PromptSet& set, std::string name) : set_(set), name_(std::move(name)) {}
  [[nodiscard]] std::vector<std::byte> file(std::uint32_t prompt, std::size_t picture) override;

 private:
  const PromptSet& set_;
  std::string name_;
};

/// The files of a stored run's pictures, as its prompts name them.
class StoredPictures final : public PictureSource {
 public:
  /// `prompts` outlive this; `name`: name of the run.
  StoredPictures(std::span<const Prompt> prompts, std::string name)
      : prompts_(prompts), name_(std::move(name)) {}
  [[nodiscard]] std::vector<std::byte> file(std::uint32_t prompt, std::size_t picture) override;

 private:
  std::span<const Prompt> prompts_;
  std::string name_;
};

/// XXH3 of a file: 128 bits, low half first.
[[nodiscard]] std::array<std::uint64_t, 2> picture_hash(std::span<const std::byte> file);

}  // namespace paceline::io
