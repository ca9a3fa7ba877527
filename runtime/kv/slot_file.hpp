// A file of slots of equal size on a local disk. The file exists only while it is open.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace paceline::kv {

/// The file has no name in its directory, or loses its name at once, so that no file is left on the
/// disk even if the process is killed. Reads and writes bypass the page cache if the file system
/// allows it, because blocks are written when memory is short, and the cache would keep them in
/// memory. Used by one thread.
class SlotFile {
 public:
  /// Alignment, in bytes, that slot sizes and the addresses of `pieces` must have.
  static constexpr std::size_t kAlignment = 4096;

  /// `slot`: bytes of a slot. Throws IoError, which names the directory, if no file can be made.
  SlotFile(const std::string& directory, std::size_t slot);
  ~SlotFile();
  SlotFile(const SlotFile&) = delete;
  SlotFile& operator=(const SlotFile&) = delete;

  /// Write or read consecutive slots from `first` on. `pieces`: memory of whole slots, in order.
  /// Return an error text, which is empty if all slots were transferred.
  [[nodiscard]] std::string write(std::int32_t first, std::span<const iovec> pieces);
  [[nodiscard]] std::string read(std::int32_t first, std::span<const iovec> pieces);

  [[nodiscard]] const std::string& directory() const { return directory_; }

 private:
  [[nodiscard]] std::string transfer(bool writes, std::int32_t first,
                                     std::span<const iovec> pieces);
  void leave_cache(std::int64_t offset, std::int64_t bytes, bool written) const;

  std::string directory_;
  std::size_t slot_;
  int fd_ = -1;
  bool direct_ = false;
};

}  // namespace paceline::kv
