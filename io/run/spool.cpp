#include "io/run/spool.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "io/hdf5/atomic_file.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {

constexpr std::size_t kBuffered = std::size_t{1} << 20;

Spool::Spool(const std::string& directory)
    : path_((std::filesystem::path(directory) / ".spool-XXXXXX").string()),
      file_(::mkstemp(path_.data())) {
  if (file_.get() < 0) throw IoError("cannot create " + describe_errno(path_, errno));
  ::unlink(path_.c_str());
}

void Spool::put(std::span<const std::byte> record) {
  sizes_.push_back(record.size());
  buffer_.insert(buffer_.end(), record.begin(), record.end());
  if (buffer_.size() < kBuffered) return;
  write(buffer_);
  buffer_.clear();
}

void Spool::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ::ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw IoError("cannot write " + describe_errno(path_, errno));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

std::vector<std::byte> Spool::next(std::size_t most) {
  if (taken_ == 0) {
    write(buffer_);
    buffer_ = {};
    if (::lseek(file_.get(), 0, SEEK_SET) < 0)
      throw IoError("cannot read " + describe_errno(path_, errno));
  }
  std::size_t size = 0;
  for (bool first = true; taken_ < sizes_.size(); first = false) {
    if (!first && size + sizes_[taken_] > most) break;
    size += sizes_[taken_++];
  }
  std::vector<std::byte> records(size);
  std::span<std::byte> left(records);
  while (!left.empty()) {
    const ::ssize_t got = ::read(file_.get(), left.data(), left.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError("cannot read " + describe_errno(path_, errno));
    if (got == 0) throw IoError("cannot read " + path_ + ": it is shorter than was written");
    left = left.subspan(static_cast<std::size_t>(got));
  }
  return records;
}

}  // namespace paceline::io
