// A picture's orientation from its metadata.
#include <optional>

#include "io/images/formats.hpp"

namespace paceline::io {
namespace {

constexpr std::uint16_t kOrientationTag = 0x0112;

/// Numbers of a TIFF structure, in its own byte order.
class Tiff {
 public:
  explicit Tiff(std::span<const std::byte> bytes) : bytes_(bytes) {}

  /// The orientation in the first directory.
  [[nodiscard]] std::optional<std::uint32_t> orientation() {
    if (bytes_.size() < 8) return std::nullopt;
    const auto first = static_cast<char>(bytes_[0]);
    if (first != static_cast<char>(bytes_[1]) || (first != 'I' && first != 'M'))
      return std::nullopt;
    little_ = first == 'I';
    if (number(2, 2) != 42) return std::nullopt;
    const std::optional<std::uint32_t> directory = number(4, 4);
    const std::optional<std::uint32_t> entries = number(*directory, 2);
    if (!entries) return std::nullopt;
    for (std::uint32_t i = 0; i < *entries; ++i) {
      const std::uint64_t entry = std::uint64_t{*directory} + 2 + std::uint64_t{i} * 12;
      const std::optional<std::uint32_t> tag = number(entry, 2);
      if (!tag) return std::nullopt;
      if (*tag == kOrientationTag) return value(entry);
    }
    return std::nullopt;
  }

 private:
  /// One value that is stored in the entry itself: a byte, a short or a long.
  [[nodiscard]] std::optional<std::uint32_t> value(std::uint64_t entry) const {
    if (number(entry + 4, 4) != 1) return std::nullopt;
    switch (number(entry + 2, 2).value_or(0)) {
      case 1:
        return number(entry + 8, 1);
      case 3:
        return number(entry + 8, 2);
      case 4:
        return number(entry + 8, 4);
      default:
        return std::nullopt;
    }
  }

  [[nodiscard]] std::optional<std::uint32_t> number(std::uint64_t at, unsigned size) const {
    if (at > bytes_.size() || bytes_.size() - at < size) return std::nullopt;
    std::uint32_t all = 0;
    for (unsigned i = 0; i < size; ++i) {
      const auto byte = std::to_integer<std::uint32_t>(bytes_[at + (little_ ? size - 1 - i : i)]);
      all = all << 8 | byte;
    }
    return all;
  }

  std::span<const std::byte> bytes_;
  bool little_ = false;
};

std::optional<std::uint32_t> orientation_of_xmp(std::string_view xmp) {
  constexpr std::string_view name = "tiff:Orientation";
  for (std::size_t at = xmp.find(name); at != xmp.npos; at = xmp.find(name, at + 1)) {
    std::string_view rest = xmp.substr(at + name.size());
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with(">")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (!rest.empty() && rest.front() >= '0' && rest.front() <= '9') return rest.front() - '0';
  }
  return std::nullopt;
}

}  // namespace

int orientation_of(std::span<const std::byte> exif, std::string_view xmp) {
  constexpr std::string_view mark("Exif\0\0", 6);
  const std::string_view text(reinterpret_cast<const char*>(exif.data()), exif.size());
  if (text.starts_with(mark)) exif = exif.subspan(mark.size());
  std::optional<std::uint32_t> found = Tiff(exif).orientation();
  if (!found) found = orientation_of_xmp(xmp);
  return found && *found >= 1 && *found <= 8 ? static_cast<int>(*found) : 1;
}

}  // namespace paceline::io
