// A file's bytes, mapped read-only and shared: all ranks of a node read the page cache's one copy.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace paceline::io {

/// Owns a mapping of a whole regular file. Thread-safe once constructed. The file must not shrink
/// while it is mapped: reading past its new end raises SIGBUS.
class MappedFile {
 public:
  /// Throws DataError if the file does not exist or is not a regular file, IoError if it cannot be
  /// opened or mapped. An empty file is an empty span.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Releases the process's pages of the file; they come back from the page cache when touched.
  void release_pages() const noexcept;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace paceline::io
