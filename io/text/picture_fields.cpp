#include "io/text/picture_fields.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>

#include "io/text/base64.hpp"
#include "io/text/chat_template.hpp"

namespace paceline::io::text {
namespace {

constexpr std::string_view kPlaceholder = "<image>";

[[nodiscard]] std::string numbered(std::size_t index) {
  return "picture " + std::to_string(index + 1) + ": ";
}

[[nodiscard]] std::string counted(std::size_t number) {
  return std::to_string(number) + (number == 1 ? " picture" : " pictures");
}

PictureFile held(std::string_view base64, const Member& source, const std::string& which) {
  const std::optional<std::string> bytes = from_base64(base64);
  if (!bytes) refuse(source, which + "expected the bytes of a picture in base64");
  const auto* begin = reinterpret_cast<const std::byte*>(bytes->data());
  return {"", {begin, begin + bytes->size()}};
}

/// The value of a key; null: it is absent or null.
const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

/// The kind of a part: its `type` or, without one, the first known key.
std::string kind_of(const Json& part, const Member& source, const std::string& which) {
  if (!part.is_object()) {
    refuse(source, which +
                       "expected {\"type\": \"text\", \"text\": ...} or {\"type\": \"image\"}, "
                       "found " +
                       describe(part));
  }
  if (const Json* type = find(part, "type")) {
    if (!type->is_string())
      refuse(source, which + "'type': expected text, found " + describe(*type));
    return type->get<std::string>();
  }
  for (const char* key : {"image", "image_url", "text"})
    if (find(part, key) != nullptr) return key;
  refuse(source, which + "expected a 'type': text, image or image_url");
}

}  // namespace

PictureFile PictureFields::picture_at(const std::string& text, const Member& source,
                                      const std::string& which) const {
  const std::string_view view = text;
  if (view.starts_with("data:")) {
    const std::size_t comma = view.find(',');
    const std::string_view head = view.substr(0, comma);
    if (comma == std::string_view::npos || !head.ends_with(";base64"))
      refuse(source, which + "expected data:image/...;base64,..., found a data URI without base64");
    return held(view.substr(comma + 1), source, which);
  }
  std::string_view path = view;
  if (const std::size_t scheme = view.find("://"); scheme != std::string_view::npos) {
    if (view.substr(0, scheme) != "file") {
      refuse(source, which + "expected a file, for nothing is fetched from a network; found " +
                         describe(text));
    }
    path = view.substr(scheme + 3);
  }
  if (path.empty() || path.find('\0') != std::string_view::npos)
    refuse(source, which + "expected the path of a picture, found " + describe(text));
  return {(std::filesystem::path(folder_) / path).lexically_normal().string(), {}};
}

PictureFile PictureFields::picture_of(const Json& value, const Member& source,
                                      const std::string& which) const {
  if (value.is_string()) return picture_at(value.get_ref<const std::string&>(), source, which);
  if (!value.is_object()) {
    refuse(source, which +
                       "expected a path, or {\"path\" | \"bytes\" | \"image\" | \"image_url\": "
                       "...}, found " +
                       describe(value));
  }
  constexpr std::array<std::string_view, 6> known{"type",  "path",      "bytes",
                                                  "image", "image_url", "text"};
  for (const auto& [key, member] : value.items()) {
    if (member.is_null() || std::ranges::find(known, key) != known.end()) continue;
    refuse(source, which + "'" + key +
                       "' cannot be honoured: the size of pictures is the model's "
                       "(preprocessor_config.json); expected path, bytes, image or image_url");
  }
  const auto text = [&](const Json& found, const char* key) -> const std::string& {
    if (!found.is_string())
      refuse(source, which + "'" + key + "': expected text, found " + describe(found));
    return found.get_ref<const std::string&>();
  };
  if (const Json* bytes = find(value, "bytes")) return held(text(*bytes, "bytes"), source, which);
  if (const Json* path = find(value, "path")) return picture_at(text(*path, "path"), source, which);
  if (const Json* image = find(value, "image")) return picture_of(*image, source, which);
  if (const Json* url = find(value, "image_url")) {
    const Json* inner = url->is_object() ? find(*url, "url") : url;
    if (inner == nullptr) refuse(source, which + "'image_url': expected a 'url'");
    return picture_at(text(*inner, "image_url"), source, which);
  }
  refuse(source, which + "expected path, bytes, image or image_url");
}

void PictureFields::read_column(const Member& images) {
  const Json value = parse(images);
  if (value.is_null()) return;
  images_ = images;
  if (!value.is_array()) {
    refuse(images, "expected a list of pictures, found " + describe(value));
  }
  for (std::size_t i = 0; i < value.size(); ++i)
    column_.push_back(picture_of(value[i], images, numbered(i)));
}

void PictureFields::take_next(const Member& source, const std::string& which) {
  if (taken_ == column_.size()) {
    refuse(source, which + "has more places for pictures than the line has pictures: " +
                       (column_.empty() ? "there are no 'images'"
                                        : "'images' has " + counted(column_.size())) +
                       "; as a part of type text, <image> is text");
  }
  placed_.push_back(column_[taken_++]);
}

std::string PictureFields::text_of_part(const Json& part, const Member& source,
                                        const std::string& which) {
  const std::string kind = kind_of(part, source, which);
  if (kind == "text") {
    const Json* text = find(part, "text");
    if (text == nullptr || !text->is_string()) {
      refuse(source, which + "'text': expected text, found " +
                         (text == nullptr ? "nothing" : describe(*text)));
    }
    return text->get<std::string>();
  }
  if (kind != "image" && kind != "image_url") {
    refuse(source, which + "type '" + kind +
                       "' is not supported: the model is given text and pictures; expected text, "
                       "image or image_url");
  }
  const bool own =
      std::ranges::any_of(std::array{"path", "bytes", "image", "image_url"},
                          [&part](const char* key) { return find(part, key) != nullptr; });
  if (own) {
    placed_.push_back(picture_of(part, source, which));
  } else {
    take_next(source, which);
  }
  return std::string(kPictureMark);
}

std::string PictureFields::text_of(const Json& content, const Member& source,
                                   const std::string& which, bool reads_parts) {
  if (content.is_string()) {
    std::string_view rest = content.get_ref<const std::string&>();
    std::string text;
    while (true) {
      const std::size_t image = rest.find(kPlaceholder);
      const std::size_t mark = rest.find(kPictureMark);
      if (image == mark) break;  // there is neither
      take_next(source, which);
      text += rest.substr(0, std::min(image, mark));
      text += kPictureMark;
      rest.remove_prefix(image < mark ? image + kPlaceholder.size() : mark + kPictureMark.size());
    }
    return text += rest;
  }
  if (!reads_parts || !content.is_array()) {
    refuse(source, which + "'content': expected text" + (reads_parts ? " or a list of parts" : "") +
                       ", found " + describe(content));
  }
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i)
    text += text_of_part(content[i], source, which + "part " + std::to_string(i + 1) + ": ");
  return text;
}

void PictureFields::take_all(const Json& messages, const Member& source) {
  if (!column_.empty() || !messages.is_array()) {
    placed_ = column_;
    taken_ = column_.size();
    return;
  }
  for (const Json& message : messages) {
    const Json* content = message.is_object() ? find(message, "content") : nullptr;
    if (content == nullptr || !content->is_array()) continue;
    for (const Json& part : *content) {
      if (part.is_object() &&
          (find(part, "image") != nullptr || find(part, "image_url") != nullptr))
        placed_.push_back(picture_of(part, source, numbered(placed_.size())));
    }
  }
}

std::vector<PictureFile> PictureFields::finish() {
  if (taken_ < column_.size()) {
    refuse(images_, "has " + counted(column_.size()) + ", and the prompt places for " +
                        std::to_string(taken_) +
                        "; expected as many <image> or parts of type image");
  }
  return std::move(placed_);
}

std::string to_json(const std::vector<PictureFile>& files) {
  Json list = Json::array();
  for (const PictureFile& file : files)
    list.push_back(file.path.empty() ? "data:image/*;base64," + to_base64(file.bytes) : file.path);
  return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<PictureFile> stored_pictures(const std::string& extra_json) {
  const std::string folder = "/";
  PictureFields pictures(folder);
  for (const Member& member : split_object(extra_json)) {
    if (member.key != "images") continue;
    pictures.read_column(member);
    pictures.take_all(Json(), member);
  }
  return pictures.finish();
}

}  // namespace paceline::io::text
