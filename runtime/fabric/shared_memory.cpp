#include "runtime/fabric/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "runtime/core/descriptor.hpp"
#include "runtime/core/error.hpp"

// Advice that the C library of Debian 12 does not know yet; kernels without it return an error.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace paceline::fabric {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

[[noreturn]] void fail(const char* what) {
  throw IoError(fmt::format("shared memory: {}: {}", what, std::strerror(errno)));
}

std::string name_of(std::uint64_t token) { return fmt::format("paceline-{:016x}", token); }

/// Reserves `bytes` bytes of address space that begin on a huge page's boundary.
std::byte* free_place(std::size_t bytes) {
  void* all = mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) fail("address space");
  auto* const begin = static_cast<std::byte*>(all);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(all) % kHugePage;
  const std::size_t before = past == 0 ? 0 : kHugePage - past;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, kHugePage - before);
  return begin + before;
}

}  // namespace

// Delegates to the default constructor, so that the destructor cleans up after a throw here.
SharedMemory::SharedMemory(const Handle& handle, int descriptor) : SharedMemory() {
  descriptor_ = descriptor;
  const std::size_t bytes = round_up(handle.bytes);
  data_ = free_place(bytes);
  mapped_ = bytes;
  if (mmap(data_, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0) ==
      MAP_FAILED)
    fail("mapping it");
  handle_ = handle;
}

SharedMemory SharedMemory::make(std::size_t bytes) {
  rlimit limit{};
  // Past the limit the system would send a signal that ends the process.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < round_up(bytes)) {
    errno = EFBIG;
    fail("sizing it (ulimit -f)");
  }
  std::random_device random;
  Handle handle{getpid(), -1, std::uint64_t{random()} << 32 | random(), bytes};
  Descriptor file(memfd_create(name_of(handle.token).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) fail("making it");
  // The size is sealed: if another process shrank the memory, reading past the end would be a bus
  // error.
  if (ftruncate(file.get(), static_cast<off_t>(round_up(bytes))) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail("sizing it");
  handle.descriptor = file.get();
  return {handle, file.release()};
}

SharedMemory SharedMemory::open(const Handle& handle) {
  const std::string path = fmt::format("/proc/{}/fd/{}", handle.process, handle.descriptor);
  char target[64] = {};
  const ssize_t length = readlink(path.c_str(), target, sizeof target - 1);
  if (length < 0) fail("finding another process's");
  // The descriptor may be any file where ranks of a node are in different process namespaces.
  if (!std::string(target).starts_with("/memfd:" + name_of(handle.token))) {
    errno = ENOENT;
    fail("finding another process's");
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) fail("opening another process's");
  return {handle, fd};
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, mapped_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : handle_(std::exchange(other.handle_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      mapped_(std::exchange(other.mapped_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  return *this;
}

bool SharedMemory::allocate(int part, int parts) {
  const std::size_t pages = mapped_ / kHugePage;
  const std::size_t first = pages * part / parts * kHugePage;
  const std::size_t size = pages * (part + 1) / parts * kHugePage - first;
  if (size == 0) return true;
  if (fallocate(descriptor_, 0, static_cast<off_t>(first), static_cast<off_t>(size)) != 0)
    fail("taking memory for it");
  return madvise(data_ + first, size, MADV_COLLAPSE) == 0;
}

void SharedMemory::freeze() {
  mprotect(data_, mapped_, PROT_READ);
  if (madvise(data_, mapped_, MADV_POPULATE_READ) == 0) return;
  // Before Linux 5.14 touching is the only way to map pages.
  for (std::size_t at = 0; at < mapped_; at += 4096)
    static_cast<void>(static_cast<volatile std::byte*>(data_)[at]);
}

std::optional<SharedMemory> share_memory(MPI_Comm comm, std::size_t bytes) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  SharedMemory memory;
  int can = 1;
  const auto attempt = [&](const auto& step) {
    try {
      if (can != 0) step();
    } catch (const Error&) {
      can = 0;
    }
  };
  if (rank == 0) attempt([&] { memory = SharedMemory::make(bytes); });
  SharedMemory::Handle handle = memory.handle();
  MPI_Bcast(&handle, sizeof handle, MPI_BYTE, 0, comm);
  // Ranks on other nodes find no memory with this token.
  if (rank != 0) attempt([&] { memory = SharedMemory::open(handle); });
  attempt([&] { memory.allocate(rank, size); });
  MPI_Allreduce(MPI_IN_PLACE, &can, 1, MPI_INT, MPI_MIN, comm);
  if (can == 0) return std::nullopt;
  return memory;
}

}  // namespace paceline::fabric
