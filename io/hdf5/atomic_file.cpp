#include "io/hdf5/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <system_error>
#include <utility>

#include "runtime/core/descriptor.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

[[noreturn]] void fail(const std::string& verb, const std::string& path, int error) {
  throw IoError("cannot " + verb + " " + describe_errno(path, error));
}

void sync_path(const std::string& path, int flags) {
  const Descriptor fd(::open(path.c_str(), flags | O_CLOEXEC));
  if (fd.get() < 0) fail("open", path, errno);
  // Some file systems cannot sync a directory; they return EINVAL, and nothing more can be done.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) fail("sync", path, errno);
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

/// A hidden name in the folder of `path`, with `mark` before the ending of temporaries.
std::string hidden(const std::string& path, const std::string& mark) {
  const std::filesystem::path whole(path);
  return (whole.parent_path() / ("." + whole.filename().string() + mark + ".tmp")).string();
}

/// Creates a temporary file of `path` under a name that no other process uses. Returns the file and
/// the name.
std::pair<Descriptor, std::string> create_unique(const std::string& path) {
  std::random_device random;
  while (true) {
    std::string name = hidden(path, "." + std::to_string(random()));
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return {Descriptor(fd), std::move(name)};
    if (errno != EEXIST) fail("create", path, errno);
  }
}

bool commit(const std::string& temporary, const std::string& path, bool exclusive) {
  sync_path(temporary, O_RDONLY | O_NOFOLLOW);
  bool linked = false;
  if (exclusive) {
    // link() refuses an existing name atomically; rename() does not.
    linked = ::link(temporary.c_str(), path.c_str()) == 0;
    const bool taken = !linked && errno == EEXIST;
    if (linked || taken) ::unlink(temporary.c_str());
    if (taken) return false;
  }
  if (!linked && ::rename(temporary.c_str(), path.c_str()) != 0) fail("rename to", path, errno);
  sync_path(folder_of(path), O_RDONLY | O_DIRECTORY);
  return true;
}

}  // namespace

std::string describe_errno(const std::string& path, int error) {
  return path + ": " + std::system_category().message(error);
}

std::string temporary_name(const std::string& path) { return hidden(path, ""); }

bool is_temporary_of(const std::string& filename, const std::string& name) {
  return filename.starts_with("." + name + ".") && filename.ends_with(".tmp");
}

bool commit_temporary(const std::string& path, bool exclusive) {
  return commit(temporary_name(path), path, exclusive);
}

void discard_temporary(const std::string& path) noexcept { ::unlink(temporary_name(path).c_str()); }

bool write_whole(const std::string& path, const std::string& text, bool exclusive) {
  std::error_code ignored;
  const auto there = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    throw IoError(path + ": is there and is no regular file; it stays as it is");
  auto [fd, temporary] = create_unique(path);
  const auto discard = [name = temporary.c_str()] { ::unlink(name); };
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(fd.get(), text.data() + done, text.size() - done);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      const int error = errno;
      discard();
      fail("write", path, error);
    }
    done += static_cast<std::size_t>(wrote);
  }
  if (::close(fd.release()) != 0) {
    const int error = errno;
    discard();
    fail("write", path, error);
  }
  return commit(temporary, path, exclusive);
}

std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("read", path, errno);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) fail("read", path, errno);
  return text;
}

}  // namespace paceline::io
