#include "io/text/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "runtime/core/error.hpp"

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

std::string read_file(const std::string& path) {
  const auto fail = [&](int reason) {
    const std::string message = path + ": cannot be read: " + std::strerror(reason);
    if (reason == ENOENT || reason == ENOTDIR) throw DataError(message);
    throw IoError(message);
  };
  // O_NONBLOCK: opening a pipe by mistake must not wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail(errno);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(::fdopen(descriptor, "rb"),
                                                             &std::fclose);
  if (!file) fail(errno);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail(errno);
  if (!S_ISREG(status.st_mode)) throw DataError(path + ": not a regular file");
  std::string text;
  char buffer[1U << 16U];
  std::size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof buffer, file.get())) > 0) text.append(buffer, got);
  if (std::ferror(file.get()) != 0) fail(errno);
  return text;
}

}  // namespace paceline::io::text
