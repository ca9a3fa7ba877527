// Pictures of prompts: the data that all ranks have of them, and the way to their pixels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/image_processor_config.hpp"

namespace paceline {

/// A picture of a prompt. Between ranks a picture travels as its file's bytes, which are a tenth of
/// its pixels. The ranks that compute its rows decode it.
struct PromptPicture {
  std::array<std::uint64_t, 2> hash{};  ///< hash of the file: XXH3, 128 bits, low half first
  PictureGrid grid;
  std::int32_t first = 0;  ///< position in the prompt of the first row; the others follow it
  bool operator==(const PromptPicture&) const = default;
};

/// A picture's file, shared by all its holders on a rank.
using PictureBytes = std::shared_ptr<const std::vector<std::byte>>;

/// The files of prompts' pictures. Used by one thread.
class PictureSource {
 public:
  virtual ~PictureSource() = default;
  /// The bytes of picture `picture` of a prompt, by the prompt's index. Throws DataError, naming
  /// the file and the prompt's line, if the bytes no longer have the hash PromptPicture::hash.
  [[nodiscard]] virtual std::vector<std::byte> file(std::uint32_t prompt, std::size_t picture) = 0;
};

/// Decodes pictures for the tower. Thread-safe.
class PictureReader {
 public:
  virtual ~PictureReader() = default;
  /// The input of Tower::compute() for the picture with this file: [grid.patches(), patch
  /// elements]. Throws DataError, beginning with `name`, if the file is damaged or has another
  /// grid.
  [[nodiscard]] virtual std::vector<float> patches(std::span<const std::byte> file,
                                                   const PictureGrid& grid,
                                                   const std::string& name) const = 0;
};

}  // namespace paceline
