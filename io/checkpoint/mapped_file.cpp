#include "io/checkpoint/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/core/descriptor.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: if the path is a pipe by mistake, opening it must not wait for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const std::string message = path + ": " + std::strerror(errno);
    if (errno == ENOENT || errno == ENOTDIR) throw DataError(message);
    throw IoError(message);
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw IoError(path + ": " + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw DataError(path + ": not a regular file");
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // an empty file is not mapped
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) throw IoError(path + ": cannot map: " + std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::release_pages() const noexcept {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

}  // namespace paceline::io
