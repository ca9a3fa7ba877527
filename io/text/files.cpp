#include "io/text/files.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "runtime/core/error.hpp"

namespace paceline::io::text {

std::string read_file(const std::string& path) {
  const auto fail = [&](int reason) {
    throw IoError(path + ": cannot be read: " + std::strerror(reason));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) fail(errno);
  std::string text;
  char buffer[1U << 16U];
  std::size_t got = 0;
  while ((got = std::fread(buffer, 1, sizeof buffer, file.get())) > 0) text.append(buffer, got);
  if (std::ferror(file.get()) != 0) fail(errno);
  return text;
}

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace paceline::io::text
