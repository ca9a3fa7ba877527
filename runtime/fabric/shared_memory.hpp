// Memory shared by processes of a node.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace paceline::fabric {

/// A mapping of memory that other processes map too. The memory has no name in any file system: it
/// is freed with its last process, however that process ends. It is bounded by the machine's
/// memory, not by the size of /dev/shm, which is small in containers. Moving the object keeps
/// addresses. The object is used by one thread; the memory itself by any.
class SharedMemory {
 public:
  /// Data by which another process of this user finds the memory, as long as the process that made
  /// it has it.
  struct Handle {
    std::int32_t process = 0;
    std::int32_t descriptor = -1;
    std::uint64_t token = 0;  ///< random, so that no other descriptor is mistaken for it
    std::uint64_t bytes = 0;
  };

  SharedMemory() = default;  ///< empty
  /// Makes zero-filled memory that begins on a huge page. Pages are allocated when touched, or by
  /// allocate(). Throws IoError where the system does not allow it.
  static SharedMemory make(std::size_t bytes);
  /// Maps another process's memory, or memory of this process once more. Throws IoError.
  static SharedMemory open(const Handle& handle);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// The handle of this memory.
  [[nodiscard]] const Handle& handle() const { return handle_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, handle_.bytes}; }

  /// Allocates one of `parts` equal parts of the memory, and throws IoError where there is too
  /// little: touching it would then kill the process. From Linux 6.1 on the pages are huge,
  /// whatever the system's setting for shared memory (mostly "never"). Returns false where they are
  /// small, so that reads are slower.
  bool allocate(int part, int parts);
  /// Makes this process's mapping read-only, and maps every page, so that reads cause no page
  /// faults.
  void freeze();

 private:
  SharedMemory(const Handle& handle, int descriptor);

  Handle handle_;
  int descriptor_ = -1;
  std::size_t mapped_ = 0;  ///< bytes, a multiple of huge pages
  std::byte* data_ = nullptr;
};

/// Makes memory that all ranks of `comm` map, each rank having allocated an equal part. Returns
/// nullopt on every rank if one cannot, as on another node or in another container. Collective.
[[nodiscard]] std::optional<SharedMemory> share_memory(MPI_Comm comm, std::size_t bytes);

}  // namespace paceline::fabric
