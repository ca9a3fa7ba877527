#include "io/hdf5/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

/// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& verb, const std::string& path, int error) {
  throw IoError("cannot " + verb + " " + describe_errno(path, error));
}

void sync_path(const std::string& path, int flags) {
  const Descriptor fd(::open(path.c_str(), flags | O_CLOEXEC));
  if (fd.get() < 0) fail("open", path, errno);
  // Some file systems cannot sync a directory; they say EINVAL, and there is nothing more to do.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) fail("sync", path, errno);
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

std::string describe_errno(const std::string& path, int error) {
  return path + ": " + std::system_category().message(error);
}

std::string temporary_name(const std::string& path) {
  const std::filesystem::path whole(path);
  return (whole.parent_path() / ("." + whole.filename().string() + ".tmp")).string();
}

bool commit_temporary(const std::string& path, bool exclusive) {
  const std::string temporary = temporary_name(path);
  sync_path(temporary, O_RDONLY);
  bool linked = false;
  if (exclusive) {
    // link() refuses an existing name atomically, which rename() does not.
    linked = ::link(temporary.c_str(), path.c_str()) == 0;
    if (!linked && errno == EEXIST) {
      discard_temporary(path);
      return false;
    }
    if (linked) discard_temporary(path);
  }
  if (!linked && ::rename(temporary.c_str(), path.c_str()) != 0) fail("rename to", path, errno);
  sync_path(folder_of(path), O_RDONLY | O_DIRECTORY);
  return true;
}

void discard_temporary(const std::string& path) noexcept { ::unlink(temporary_name(path).c_str()); }

bool write_whole(const std::string& path, const std::string& text, bool exclusive) {
  const std::string temporary = temporary_name(path);
  Descriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd.get() < 0) fail("create", path, errno);
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(fd.get(), text.data() + done, text.size() - done);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      const int error = errno;
      discard_temporary(path);
      fail("write", path, error);
    }
    done += static_cast<std::size_t>(wrote);
  }
  if (::close(fd.release()) != 0) {
    const int error = errno;
    discard_temporary(path);
    fail("write", path, error);
  }
  return commit_temporary(path, exclusive);
}

std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("read", path, errno);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) fail("read", path, errno);
  return text;
}

}  // namespace paceline::io
