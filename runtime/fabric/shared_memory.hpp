// Memory shared by processes of a node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace paceline::fabric {

/// A mapping of memory that other processes map too. It has no name in any file system: it is gone
/// with its last process, however that one ends, and is bound by the machine's memory, not by the
/// size of /dev/shm, which in containers is small. Moving the object keeps addresses. Used by one
/// thread; the memory itself by any.
class SharedMemory {
 public:
  /// Address by which another process of this user finds the memory while its maker has it.
  struct Handle {
    std::int32_t process = 0;
    std::int32_t descriptor = -1;
    std::uint64_t token = 0;  ///< random: another process's descriptor is not mistaken for it
    std::uint64_t bytes = 0;
  };

  SharedMemory() = default;  ///< empty
  /// Makes zero-filled memory that begins on a huge page, not there until touched or allocated.
  /// Throws IoError where the system does not allow it.
  static SharedMemory make(std::size_t bytes);
  /// Maps another process's memory, or one's own once more. Throws IoError.
  static SharedMemory open(const Handle& handle);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// The handle of memory made here.
  [[nodiscard]] const Handle& handle() const { return handle_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, handle_.bytes}; }

  /// Takes memory for one of `parts` equal parts: touching it without memory to be had would end
  /// the process. In huge pages, whatever the system's setting for shared memory (most often:
  /// none), from Linux 6.1 on; false: in small pages, which are read more slowly. Throws IoError.
  bool allocate(int part, int parts);
  /// Makes this process only read from now on, with every page mapped: reads never fault.
  void freeze();

 private:
  SharedMemory(const Handle& handle, int descriptor);

  Handle handle_;
  int descriptor_ = -1;
  std::size_t mapped_ = 0;  ///< bytes, whole huge pages
  std::byte* data_ = nullptr;
};

}  // namespace paceline::fabric
