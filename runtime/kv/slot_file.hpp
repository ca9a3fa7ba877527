// A file of equal slots on a local disk, for as long as it is open and no longer.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace paceline::kv {

/// The file has no name in its directory, or loses it at once, so that nothing stays whatever
/// becomes of the process. It is read and written past the page cache where its file system can do
/// that: what the cache would keep is what has just left memory for want of room.
/// Used by one thread.
class SlotFile {
 public:
  /// What memory and sizes of slots must be multiples of.
  static constexpr std::size_t kAlignment = 4096;

  /// `slot`: bytes of one. Throws Error (io) naming the directory where no file can be made there.
  SlotFile(const std::string& directory, std::size_t slot);
  ~SlotFile();
  SlotFile(const SlotFile&) = delete;
  SlotFile& operator=(const SlotFile&) = delete;

  /// Slots from `first` on, into or from pieces of whole slots one after the other. Nothing, or why
  /// not all of it was done.
  [[nodiscard]] std::string write(std::int32_t first, std::span<const iovec> pieces);
  [[nodiscard]] std::string read(std::int32_t first, std::span<const iovec> pieces);

  /// Whether it goes past the page cache, as far as is known.
  [[nodiscard]] bool direct() const { return direct_; }
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
