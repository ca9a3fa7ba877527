// Pictures as a prompt's line names them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "io/text/json_line.hpp"

namespace paceline::io {

/// Where a picture's file is to be had.
struct PictureFile {
  std::string path;              ///< absolute; empty: the line itself has its bytes
  std::vector<std::byte> bytes;  ///< then these
};

namespace text {

/// Pictures as a prompt's extra fields keep them under `images`: a list, in the order of their
/// places, of absolute paths, and of data URIs where the line had the bytes.
[[nodiscard]] std::string to_json(const std::vector<PictureFile>& files);
/// The pictures that a stored prompt's extra fields have. Throws LineError where they are damaged.
[[nodiscard]] std::vector<PictureFile> stored_pictures(const std::string& extra_json);

/// The pictures of one line, in the order of their places in the prompt. A picture is
///   "PATH", "file:///PATH", or "data:image/...;base64,BASE64"
///   {"path": PATH}, {"bytes": BASE64, "path": ...} (a feature of Hugging Face's datasets),
///   {"image": as above}, {"image_url": as above or {"url": as above}}
/// where a PATH may be relative to the prompts' file, and null is the same as absent. Nothing is
/// fetched from a network. Functions throw LineError, with the number of the picture.
class PictureFields {
 public:
  /// `folder`: of the prompts' file, absolute.
  explicit PictureFields(const std::string& folder) : folder_(folder) {}

  /// Reads the line's column of pictures, a list.
  void read_column(const Member& images);
  /// The text of a message's content, or of a prompt, with kPictureMark in the place of pictures:
  /// of <image> or that mark in a text, which are those of the column in turn, as in verl's
  /// dataset; and of parts {"type": "image" | "image_url" | "text", ...}, which are pictures
  /// themselves, or the column's next. `source`, `which`: stand for it in messages. `reads_parts`:
  /// content may be parts.
  [[nodiscard]] std::string text_of(const Json& content, const Member& source,
                                    const std::string& which, bool reads_parts);
  /// Takes all pictures of the column, or else those of the messages' parts: the prompt is token
  /// ids beside them.
  void take_all(const Json& messages, const Member& source);
  /// The pictures. Throws where some of the column have no place.
  [[nodiscard]] std::vector<PictureFile> finish();
  /// The member to name where a picture is at fault: the column, or else `source`.
  [[nodiscard]] const Member& named(const Member& source) const {
    return column_.empty() ? source : images_;
  }

 private:
  [[nodiscard]] PictureFile picture_of(const Json& value, const Member& source,
                                       const std::string& which) const;
  [[nodiscard]] PictureFile picture_at(const std::string& text, const Member& source,
                                       const std::string& which) const;
  void take_next(const Member& source, const std::string& which);
  [[nodiscard]] std::string text_of_part(const Json& part, const Member& source,
                                         const std::string& which);

  const std::string& folder_;
  Member images_;
  std::vector<PictureFile> column_;
  std::size_t taken_ = 0;  ///< pictures of the column that have a place
  std::vector<PictureFile> placed_;
};

}  // namespace text
}  // namespace paceline::io
