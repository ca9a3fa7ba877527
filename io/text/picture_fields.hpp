// Pictures, as a prompt's line names them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "io/text/json_line.hpp"

namespace paceline::io {

/// The source of a picture's file.
struct PictureFile {
  std::string path;              ///< absolute; empty: the line itself has the bytes
  std::vector<std::byte> bytes;  ///< used if `path` is empty
};

namespace text {

/// The text under `images` in a prompt's extra fields: a list of pictures in the order of their
/// places. A picture is an absolute path, or a data URI if the line had the bytes.
[[nodiscard]] std::string to_json(const std::vector<PictureFile>& files);
/// Reads the pictures of a stored prompt's extra fields. Throws LineError if they are damaged.
[[nodiscard]] std::vector<PictureFile> stored_pictures(const std::string& extra_json);

/// The pictures of one line, in the order of their places in the prompt. A picture is
///   "PATH", "file:///PATH", or "data:image/...;base64,BASE64"
///   {"path": PATH}, {"bytes": BASE64, "path": ...} (a feature of Hugging Face's datasets),
///   {"image": as above}, {"image_url": as above or {"url": as above}}
/// where a PATH may be relative to the prompts' file, and null is the same as absent. Nothing is
/// fetched from a network. Functions throw LineError with the number of the picture.
class PictureFields {
 public:
  /// `folder`: folder of the prompts' file, absolute.
  explicit PictureFields(const std::string& folder) : folder_(folder) {}

  /// Reads the line's column of pictures, which is a list.
  void read_column(const Member& images);
  /// The text of a message's content, or of a prompt, with kPictureMark at each picture's place.
  /// <image> or kPictureMark in a text takes the column's next picture, as in verl's dataset. A
  /// part {"type": "image" | "image_url" | "text", ...} may be a picture itself, or take the
  /// column's next. `source`, `which`: name the content in messages. `reads_parts`: content may be
  /// parts.
  [[nodiscard]] std::string text_of(const Json& content, const Member& source,
                                    const std::string& which, bool reads_parts);
  /// Takes all pictures of the column or, if there are none, those of the messages' parts, for a
  /// prompt that is given as token ids.
  void take_all(const Json& messages, const Member& source);
  /// Returns the pictures. Throws if some pictures of the column have no place.
  [[nodiscard]] std::vector<PictureFile> finish();
  /// The member to name if there is an error in a picture: the column, or else `source`.
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
  std::size_t taken_ = 0;  ///< number of pictures of the column with a place
  std::vector<PictureFile> placed_;
};

}  // namespace text
}  // namespace paceline::io
