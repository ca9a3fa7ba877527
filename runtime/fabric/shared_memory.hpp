// Memory that processes of a node have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace paceline::fabric {

/// A mapping of memory that other processes map too. It has no name in any file system, so that it
/// is gone with the last process that has it, however that ends, and so that what bounds it is the
/// machine's memory and not the size of /dev/shm, which in containers is small. Moving it keeps
/// addresses. Used by one thread; the memory itself by any.
class SharedMemory {
 public:
  /// Where another process of this user finds it, while its maker has it.
  struct Handle {
    std::int32_t process = 0;
    std::int32_t descriptor = -1;
    std::uint64_t token = 0;  ///< random: a number of another process's is not mistaken for it
    std::uint64_t bytes = 0;
  };

  SharedMemory() = default;  ///< none
  /// Zero-filled, begins on a huge page; not there until it is touched or allocated. Throws IoError
  /// where the system does not allow it.
  static SharedMemory make(std::size_t bytes);
  /// That of another process, or one's own once more. Throws IoError.
  static SharedMemory open(const Handle& handle);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// Of memory that was made here.
  [[nodiscard]] const Handle& handle() const { return handle_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, handle_.bytes}; }

  /// Takes memory for one of `parts` equal parts: touched without memory to be had, it would end
  /// the process. In huge pages, whatever the system's setting for shared memory is (most often:
  /// none), from Linux 6.1 on; false: in small ones, which are read more slowly. Throws IoError.
  bool allocate(int part, int parts);
  /// From now on this process only reads, and every page is mapped: reading waits for none.
  void freeze();

 private:
  SharedMemory(const Handle& handle, int descriptor);

  Handle handle_;
  int descriptor_ = -1;
  std::size_t mapped_ = 0;  ///< bytes, whole huge pages
  std::byte* data_ = nullptr;
};

}  // namespace paceline::fabric
