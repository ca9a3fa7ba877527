#include "kernels/cpu/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "runtime/core/error.hpp"

namespace paceline::kernels::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
/// Size from which on memory is in huge pages, the last of which may be mostly unused. It is the
/// size of the smaller matrices and activations of a layer: in small pages, products of up to 64
/// rows take 3 to 10 % more time (measured).
constexpr std::size_t kLarge = std::size_t{512} << 10;
constexpr std::align_val_t kAlignment{64};

}  // namespace

Memory::Memory(std::size_t bytes) : size_(bytes) {
  if (bytes < kLarge) {
    data_ = static_cast<std::byte*>(::operator new(bytes == 0 ? 1 : bytes, kAlignment));
    std::memset(data_, 0, bytes);
    return;
  }
  // The mapping is one huge page longer, so that the data can begin on a huge page's boundary.
  mapped_ = (bytes + 2 * kHugePage - 1) / kHugePage * kHugePage;
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    throw std::bad_alloc();
  }
  const auto address = reinterpret_cast<std::uintptr_t>(mapping_);
  data_ = static_cast<std::byte*>(mapping_) + (kHugePage - address % kHugePage) % kHugePage;
  // The advice is a hint: without huge pages everything works, but is slower.
  madvise(mapping_, mapped_, MADV_HUGEPAGE);
}

Memory::~Memory() {
  if (mapping_ != nullptr) {
    munmap(mapping_, mapped_);
  } else if (data_ != nullptr) {
    ::operator delete(data_, kAlignment);
  }
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

void Memory::reserve(std::size_t bytes) {
  if (bytes > size_) {
    *this = Memory();  // frees the old pages first
    *this = Memory(bytes + bytes / 4);
  }
}

void Memory::give_back(std::size_t from) {
  if (from >= size_) return;
  std::size_t whole = size_;  // start of whole pages; bytes before it are set to zero
  if (mapping_ != nullptr) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    whole = (from + page - 1) / page * page;  // data_ begins on a page
    // Pages up to the end of the last one go back: nothing else is in it.
    const std::size_t end = (size_ + page - 1) / page * page;
    if (whole < end && madvise(data_ + whole, end - whole, MADV_DONTNEED) != 0)
      throw Error(ExitCode::internal,
                  std::string("giving memory back to the system: ") + std::strerror(errno));
  }
  std::memset(data_ + from, 0, std::min(whole, size_) - from);
}

}  // namespace paceline::kernels::cpu
