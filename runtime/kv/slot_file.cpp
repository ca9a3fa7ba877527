#include "runtime/kv/slot_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "runtime/core/error.hpp"

namespace paceline::kv {
namespace {

/// Opens a file without a name. Returns -1 and sets errno on failure.
int open_nameless(const std::string& directory) {
  const int made = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  // Older kernels and some file systems have no nameless files.
  if (made >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return made;
  std::string path = directory + "/.paceline-kv-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

}  // namespace

SlotFile::SlotFile(const std::string& directory, std::size_t slot)
    : directory_(directory), slot_(slot) {
  fd_ = open_nameless(directory);
  if (fd_ < 0)
    throw IoError(fmt::format("{}: cannot create the KV pool's file in this directory: {}",
                              directory, std::strerror(errno)));
  direct_ = fcntl(fd_, F_SETFL, O_DIRECT) == 0;
}

SlotFile::~SlotFile() { close(fd_); }

std::string SlotFile::write(std::int32_t first, std::span<const iovec> pieces) {
  return transfer(true, first, pieces);
}

std::string SlotFile::read(std::int32_t first, std::span<const iovec> pieces) {
  return transfer(false, first, pieces);
}

std::string SlotFile::transfer(bool writes, std::int32_t first, std::span<const iovec> pieces) {
  std::vector<iovec> left(pieces.begin(), pieces.end());
  const std::int64_t begin = static_cast<std::int64_t>(first) * static_cast<std::int64_t>(slot_);
  std::int64_t offset = begin;
  for (std::size_t at = 0; at < left.size();) {
    const int count = static_cast<int>(std::min<std::size_t>(left.size() - at, IOV_MAX));
    const ssize_t done =
        writes ? pwritev(fd_, &left[at], count, offset) : preadv(fd_, &left[at], count, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EINVAL && direct_ && offset == begin) {  // this disk refuses O_DIRECT
      direct_ = false;
      fcntl(fd_, F_SETFL, 0);
      continue;
    }
    if (done <= 0) {
      return fmt::format("{} the KV file in {} failed: {}", writes ? "writing" : "reading",
                         directory_,
                         done < 0 ? std::strerror(errno)
                         : writes ? "nothing was written"
                                  : "it is too short");
    }
    offset += done;
    if (direct_ && offset % static_cast<std::int64_t>(kAlignment) != 0)
      return fmt::format("{} the KV file in {} stopped in the middle of a disk block{}",
                         writes ? "writing" : "reading", directory_,
                         writes ? " (is the disk full?)" : "");
    auto rest = static_cast<std::size_t>(done);
    while (at < left.size() && rest >= left[at].iov_len) rest -= left[at++].iov_len;
    if (rest == 0) continue;
    left[at].iov_base = static_cast<std::byte*>(left[at].iov_base) + rest;
    left[at].iov_len -= rest;
  }
  if (!direct_) leave_cache(begin, offset - begin, writes);
  return {};
}

/// Drops a transfer's pages from the page cache, where they would take memory.
void SlotFile::leave_cache(std::int64_t offset, std::int64_t bytes, bool written) const {
  if (written) {
    sync_file_range(
        fd_, offset, bytes,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  }
  posix_fadvise(fd_, offset, bytes, POSIX_FADV_DONTNEED);
}

}  // namespace paceline::kv
