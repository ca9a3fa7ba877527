#include "io/text/file_formats.hpp"

#include <array>

namespace paceline::io::text {
namespace {

struct Format {
  std::string_view begins;
  std::string_view name;
  std::string_view remedy;  ///< empty: the converter reads this kind
};

using namespace std::string_view_literals;

constexpr std::array formats = {
    Format{"PAR1"sv, "a Parquet file", ""},
    Format{"\x1f\x8b"sv, "compressed by gzip", ""},
    Format{"\x28\xb5\x2f\xfd"sv, "compressed by zstd", "unpack it by zstd -d"},
    Format{"BZh"sv, "compressed by bzip2", "unpack it by bunzip2"},
    Format{"\xfd\x37\x7a\x58\x5a"sv, "compressed by xz", "unpack it by unxz"},
    Format{"PK\x03\x04"sv, "a zip archive", "unpack it by unzip"},
    Format{"ARROW1"sv, "an Arrow file", "its data set's to_json() writes them"},
    Format{"\x89HDF\r\n"sv, "an HDF5 file", "prompts are one JSON object a line"},
};

}  // namespace

std::string other_format(std::string_view text, const std::string& path) {
  for (const Format& format : formats) {
    if (!text.starts_with(format.begins)) continue;
    std::string says = "this is " + std::string(format.name) + "; expected JSON Lines: ";
    if (!format.remedy.empty()) return says + std::string(format.remedy);
    return says + "python3 -m paceline_run.prompts " + path + " OUT.jsonl makes them of it";
  }
  return "";
}

}  // namespace paceline::io::text
