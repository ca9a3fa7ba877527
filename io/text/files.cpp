#include "io/text/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "runtime/core/error.hpp"

namespace paceline::io::text {

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

bool file_exists(const std::string& path) { return std::filesystem::exists(path); }

}  // namespace paceline::io::text
