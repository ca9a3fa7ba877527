// Large, zero-filled, cache-line aligned memory, on huge pages where the system gives them.
#pragma once

#include <cstddef>

namespace paceline::kernels::cpu {

class Memory {
 public:
  Memory() = default;
  /// Throws std::bad_alloc.
  explicit Memory(std::size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Makes the memory at least `bytes` bytes long; contents are lost when it has to grow.
  void reserve(std::size_t bytes);
  /// Gives the pages from byte `from` on back to the system; they read as zero until they are
  /// written. Small memory, which is not mapped, is set to zero.
  void give_back(std::size_t from);

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  void* mapping_ = nullptr;  ///< null: memory from operator new
  std::size_t mapped_ = 0;
};

}  // namespace paceline::kernels::cpu
